// Light or dark, before anything is painted: what was chosen here, else what the system prefers.
(() => {
  const chosen = (() => { try { return localStorage.getItem("rota.theme"); } catch { return null; } })();
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
