// The router: every view has a URL, and the module of a page is fetched when it is first opened.
import { html, signal, useEffect } from "./lib.js";
import { withQuery } from "./api.js";
import { root } from "./root.js";

export const pages = []; // those of the side bar first, in its order

/** A path of this host as the dashboard knows it. */
const inside = (path) => path.startsWith(`${root}/`) ? path.slice(root.length) : "/";
export const here = () => inside(location.pathname);
const read = () => ({ path: decodeSafely(here()), query: Object.fromEntries(new URLSearchParams(location.search)) });
function decodeSafely(path) { return path.length > 1 ? path.replace(/\/+$/, "") : path; }

export const place = signal(read());

/** Register a page: { path: "/things/:id", title, load, nav?: { label, order, key, badge } }. */
export function page({ load, ...definition }) {
  const parts = definition.path.split("/").filter(Boolean);
  pages.push({ ...definition, parts, component: loaded(load) });
}

/** The component of a page, which fetches its module when it is first shown. */
function loaded(load) {
  const module = signal(null); // { component } or { problem }
  const fetchModule = () => load().then(
    ({ default: component }) => { module.value = { component }; },
    (problem) => { module.value = { problem }; });
  return function Page(props) {
    useEffect(() => { if (!module.value?.component) fetchModule(); }, []);
    const { component, problem } = module.value || {};
    if (component) return html`<${component} ...${props} />`;
    // The browser remembers that a module failed, so only loading the whole page again helps.
    return problem ? html`<p class="empty" role="alert">This page could not be loaded from the coordinator. <a href="" onClick=${(event) => { event.preventDefault(); location.reload(); }}>Load it again</a></p>` : null;
  };
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
  if (href === here() + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", root + href);
  place.value = read();
  if (!replace) window.scrollTo(0, 0);
}

/** Change parameters of the address; an empty value removes one. */
export function setQuery(changes, { replace = false } = {}) {
  const query = { ...place.value.query, ...changes };
  go(link(here(), query), { replace });
}

window.addEventListener("popstate", () => { place.value = read(); });

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const anchor = event.target.closest?.("a[href]");
  if (!anchor || anchor.target || anchor.hasAttribute("download") || anchor.origin !== location.origin || anchor.hash) return;
  const path = inside(anchor.pathname);
  if (!anchor.pathname.startsWith(`${root}/`) || !matching(path)) return;
  event.preventDefault();
  go(path + anchor.search);
});
