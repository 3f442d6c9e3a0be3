// The small parts that pages are made of.
import { html, useState } from "./lib.js";
import { isAbsolute, now } from "./clock.js";
import { absolute, duration, relative, short, whole } from "./format.js";
import { go, link, place, setQuery } from "./router.js";
import { tone } from "./states.js";

export function Header({ title, children, sub }) {
  return html`<header class="page-head">
    <div class="page-title"><h1 tabindex="-1">${title}</h1>${sub && html`<p>${sub}</p>`}</div>
    <div class="page-tools">${children}</div>
  </header>`;
}

export const Badge = ({ state, children }) =>
  html`<span class="badge" data-tone=${tone(state)}><i aria-hidden="true"></i>${children || String(state).replaceAll("_", " ")}</span>`;

export const Dot = ({ state }) => html`<i class="dot" data-tone=${tone(state)} aria-hidden="true"></i>`;

export function Time({ at, empty = "–" }) {
  if (at === null || at === undefined) return html`<span class="faint">${empty}</span>`;
  const [byClock, fromNow] = [absolute(at), relative(at, now.value)];
  return html`<time datetime=${new Date(at).toISOString()} title=${isAbsolute.value ? fromNow : byClock}>${isAbsolute.value ? byClock.slice(0, 19) : fromNow}</time>`;
}

/** How long something took, or takes since `from` while there is no `to`. */
export function Duration({ from, to, ms }) {
  if (ms === undefined) {
    if (from === null || from === undefined) return html`<span class="faint">–</span>`;
    const took = (to ?? now.value) - from;
    ms = to === null || to === undefined ? Math.floor(Math.max(0, took) / 1000) * 1000 : took;
  }
  const text = duration(ms).replace(".0 s", " s");
  return html`<span class="number" title=${from ? `${absolute(from)}${to ? ` – ${absolute(to)}` : ""}` : undefined}>${text}</span>`;
}

export const Count = ({ of }) => html`<span class="number" title=${whole(of)}>${short(of)}</span>`;

export function Bar({ share, state = "running", label, kind = "" }) {
  const part = Math.max(0, Math.min(1, Number(share) || 0));
  return html`<span class=${`bar ${kind}`} data-tone=${tone(state)} role="progressbar" aria-label=${label || "progress"} aria-valuemin="0" aria-valuemax="100" aria-valuenow=${Math.round(part * 100)}>
    <i style=${{ width: `${part * 100}%` }}></i></span>`;
}

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

export function Problem({ of }) {
  if (of.problem) return html`<p class="problem" role="alert"><b>${of.problem.code}</b> ${of.problem.detail}</p>`;
  return of.isLoading ? html`<p class="empty" aria-busy="true">…</p>` : null;
}

export function Button({ onClick, kind = "", busy, children, ...rest }) {
  const [isBusy, setBusy] = useState(false);
  const click = async (event) => {
    setBusy(true);
    try { await onClick?.(event); } finally { setBusy(false); }
  };
  return html`<button type="button" class=${`button ${kind}`} disabled=${busy || isBusy} ...${rest} onClick=${click}>${children}</button>`;
}

export function Copy({ text, children = "copy", label }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    await copyText(typeof text === "function" ? text() : text);
    setDone(true);
    setTimeout(() => setDone(false), 1200);
  };
  return html`<button type="button" class="button quiet" aria-label=${label} onClick=${copy}>${isDone ? "copied ✓" : children}</button>`;
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without HTTPS browsers offer no clipboard beyond loopback.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

/** Choices that are addresses: [{ label, count, query, isOn, state }]. */
export const Tabs = ({ items, label }) => html`<nav class="tabs" aria-label=${label}>
  ${items.map((one) => html`<a key=${one.label} href=${one.href} aria-current=${one.isOn ? "true" : undefined}>
    ${one.state && html`<${Dot} state=${one.state} />`}${one.label}${one.count !== undefined && html` <${Count} of=${one.count} />`}</a>`)}
</nav>`;

/** Pages by cursor, both kept in the address: the browser's own "back" is the way back. */
export function Pager({ next, shown, first = "newest", further = "older" }) {
  const { query } = place.value;
  if (!next && !query.cursor) return null;
  return html`<nav class="pager" aria-label="pages">
    ${query.cursor && html`<button type="button" class="button" onClick=${() => setQuery({ cursor: "" })}>${first}</button>`}
    ${query.cursor && html`<button type="button" class="button" onClick=${() => history.back()}>back</button>`}
    <span class="faint">${shown}</span>
    ${next && html`<button type="button" class="button" onClick=${() => setQuery({ cursor: next })}>${further}</button>`}
  </nav>`;
}

/** A field whose value stands in the address under `name`. */
export function Field({ name, label, options, placeholder, ...rest }) {
  const value = place.value.query[name] || "";
  const change = (event) => setQuery({ [name]: event.target.value.trim(), cursor: "" }, { replace: true });
  const listId = options && `options-${name}`;
  return html`<label class="field"><span>${label}</span>
    <input type="search" value=${value} placeholder=${placeholder || "any"} list=${listId} autocomplete="off" spellcheck=${false} onChange=${change} ...${rest} />
    ${options && html`<datalist id=${listId}>${options.map((one) => html`<option key=${one} value=${one} />`)}</datalist>`}
  </label>`;
}

/** Pairs of a word and what it is; pairs without a value are left out. */
export const Facts = ({ items }) => html`<dl class="facts">
  ${items.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) =>
    html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
</dl>`;

export const Panel = ({ title, tools, children, kind = "" }) => html`<section class=${`panel ${kind}`}>
  ${title && html`<header><h2>${title}</h2>${tools && html`<div class="tools">${tools}</div>`}</header>`}${children}
</section>`;

/** A row of a table that can be opened by a click anywhere in it; its link serves the keyboard. */
export const opens = (href) => ({
  "data-href": href,
  onClick: (event) => {
    if (event.defaultPrevented || event.target.closest("a,button,input,label,summary") || String(getSelection())) return;
    go(href);
  },
});

export { link };
