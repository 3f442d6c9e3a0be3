// A JSON value as a tree that opens and closes, made of text nodes alone: data is never markup.
import { html, useState } from "./lib.js";
import { bytes, plural } from "./format.js";
import { Copy } from "./ui.js";

const OPEN_DEPTH = 2;
const MOST_SHOWN = 100; // children painted before "more"
const LONG_TEXT = 400;

export function Json({ value, label }) {
  const [isRaw, setRaw] = useState(false);
  if (value === undefined) return html`<p class="empty">none</p>`;
  const text = () => JSON.stringify(value, null, 2) ?? "null";
  const isNested = typeof value === "object" && value !== null && Object.keys(value).length > 0;
  return html`<div class="json" role="group" aria-label=${label}>
    <div class="json-tools">
      ${isNested && html`<button type="button" class="button quiet" onClick=${() => setRaw(!isRaw)}>${isRaw ? "tree" : "text"}</button>`}
      <${Copy} text=${text} label=${`copy ${label || "JSON"}`} />
    </div>
    ${isRaw ? html`<pre>${text()}</pre>` : html`<${Node} value=${value} depth=${0} />`}
  </div>`;
}

function Node({ name, value, depth }) {
  const label = name === undefined ? null : html`<span class="json-key">${name}</span>`;
  if (value === null || typeof value !== "object") return html`<div class="json-line">${label}<${Leaf} value=${value} /></div>`;
  return html`<${Branch} label=${label} value=${value} depth=${depth} />`;
}

function Branch({ label, value, depth }) {
  const entries = Array.isArray(value) ? value.map((one, at) => [at, one]) : Object.entries(value);
  const [isOpen, setOpen] = useState(depth < OPEN_DEPTH && entries.length <= MOST_SHOWN);
  const [shown, setShown] = useState(MOST_SHOWN);
  const brackets = Array.isArray(value) ? "[]" : "{}";
  if (!entries.length) return html`<div class="json-line">${label}<span class="faint">${brackets}</span></div>`;
  const size = Array.isArray(value) ? plural(entries.length, "item") : plural(entries.length, "field");
  return html`<div class="json-branch">
    <button type="button" class="json-toggle" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
      <span aria-hidden="true">${isOpen ? "▾" : "▸"}</span>${label}<span class="faint">${brackets[0]} ${isOpen ? "" : `${size} ${brackets[1]}`}</span>
    </button>
    ${isOpen && html`<div class="json-children">
      ${entries.slice(0, shown).map(([key, one]) => html`<${Node} key=${key} name=${key} value=${one} depth=${depth + 1} />`)}
      ${entries.length > shown && html`<button type="button" class="button quiet" onClick=${() => setShown(shown + 10 * MOST_SHOWN)}>${plural(entries.length - shown, "more", "more")}</button>`}
    </div>`}
  </div>`;
}

function Leaf({ value }) {
  const [isWhole, setWhole] = useState(false);
  if (typeof value !== "string") return html`<span class=${`json-${value === null ? "null" : typeof value}`}>${String(value)}</span>`;
  if (value.length <= LONG_TEXT || isWhole) return html`<span class="json-string">${JSON.stringify(value)}</span>`;
  return html`<span class="json-string">${JSON.stringify(value.slice(0, LONG_TEXT))}</span>
    <button type="button" class="button quiet" onClick=${() => setWhole(true)}>… ${bytes(value.length)}</button>`;
}
