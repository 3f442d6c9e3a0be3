// The router: pages register themselves, and every view has a URL.
import { signal } from "./lib.js";
import { withQuery } from "./api.js";

export const pages = []; // those of the side bar first, in its order

const read = () => ({ path: decodeSafely(location.pathname), query: Object.fromEntries(new URLSearchParams(location.search)) });
function decodeSafely(path) { return path.length > 1 ? path.replace(/\/+$/, "") : path; }

export const place = signal(read());

/** Register a page: { path: "/things/:id", title, component, nav?: { label, order, key, badge } }. */
export function page(definition) {
  const parts = definition.path.split("/").filter(Boolean);
  pages.push({ ...definition, parts });
  // Whoever is imported first: lists of pages are in the order of the side bar.
  pages.sort((left, right) => (left.nav?.order ?? Infinity) - (right.nav?.order ?? Infinity) || 0);
}

export function matching(path) {
  const parts = path.split("/").filter(Boolean);
  for (const one of pages) {
    if (one.parts.length !== parts.length) continue;
    const params = {};
    const fits = one.parts.every((part, at) => {
      if (!part.startsWith(":")) return part === parts[at];
      try { params[part.slice(1)] = decodeURIComponent(parts[at]); } catch { return false; }
      return true;
    });
    if (fits) return { page: one, params };
  }
  return null;
}

/** An address inside the dashboard; parts that are not texts of ours must be encoded by `segment`. */
export const link = (path, query = {}) => withQuery(path, query);
export const segment = (text) => encodeURIComponent(text);

export function go(href, { replace = false } = {}) {
  if (href === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", href);
  place.value = read();
  if (!replace) window.scrollTo(0, 0);
}

/** Change parameters of the address; an empty value removes one. */
export function setQuery(changes, { replace = false } = {}) {
  const query = { ...place.value.query, ...changes };
  go(link(location.pathname, query), { replace });
}

window.addEventListener("popstate", () => { place.value = read(); });

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const anchor = event.target.closest?.("a[href]");
  if (!anchor || anchor.target || anchor.hasAttribute("download") || anchor.origin !== location.origin || anchor.hash) return;
  if (!matching(anchor.pathname)) return;
  event.preventDefault();
  go(anchor.pathname + anchor.search);
});
