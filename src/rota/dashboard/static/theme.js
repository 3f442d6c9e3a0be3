// Sets light or dark before the first paint: the stored choice, else that of the system.
(() => {
  const chosen = (() => { try { return localStorage.getItem("rota.theme"); } catch { return null; } })();
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
