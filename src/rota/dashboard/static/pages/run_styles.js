// Styles of these pages alone, fetched beside them: the policy allows files of ours, and no others.
const known = new Set();

export function styles(name) {
  if (known.has(name)) return;
  known.add(name);
  const element = document.createElement("link");
  element.rel = "stylesheet";
  element.href = new URL(name, import.meta.url).href;
  document.head.append(element);
}
