// Keyboard shortcuts: `g` and a letter opens a page, single keys act. Input fields keep their keys.
import { effect, html, signal } from "./lib.js";
import { go, pages } from "./router.js";

export const overlay = signal(null); // null | "palette" | "help"
let isGoing = false;
let timer = null;

const isTyping = (target) => target.closest?.("input,textarea,select,[contenteditable]");

export const shortcuts = () => [
  ["/", "search on this page"],
  ["Ctrl K", "command palette"],
  ["j k", "next and previous row"],
  ["Enter", "open the row"],
  ["t", "light or dark"],
  ["c", "times relative or by the clock"],
  ["p", "pause or resume live updates"],
  ["?", "this list"],
  ["Esc", "close, or leave a field"],
  ...pages.filter((one) => one.nav?.key).map((one) => [`g ${one.nav.key}`, one.nav.label]),
];

export function listenToKeys(actions) {
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      overlay.value = overlay.value === "palette" ? null : "palette";
      return;
    }
    if (event.key === "Escape") {
      if (overlay.value) overlay.value = null;
      else if (isTyping(event.target)) event.target.blur();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || overlay.value) return;
    if (isGoing) {
      isGoing = false;
      const found = pages.find((one) => one.nav?.key === event.key);
      if (found) { event.preventDefault(); go(found.path); }
      return;
    }
    press(event, actions);
  });
}

function press(event, actions) {
  if (event.key === "g") {
    isGoing = true;
    clearTimeout(timer);
    timer = setTimeout(() => { isGoing = false; }, 1500);
  } else if (event.key === "/") {
    const field = document.querySelector("main [data-search], main input[type=search]");
    event.preventDefault();
    if (field) { field.focus(); field.select(); } else overlay.value = "palette";
  } else if (event.key === "?") {
    overlay.value = "help";
  } else if (event.key === "j" || event.key === "k") {
    step(event.key === "j" ? 1 : -1);
  } else if (event.key === "Enter") {
    const row = document.activeElement?.closest?.("[data-href]");
    if (row && document.activeElement === row) go(row.dataset.href);
  } else {
    actions[event.key]?.();
  }
}

/** Move the focus from row to row of the first table. */
function step(by) {
  const rows = [...document.querySelectorAll("main [data-href]")];
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement?.closest?.("[data-href]"));
  const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))];
  next.tabIndex = -1;
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

export const Help = () => html`<div class="help"><h2>Keys</h2><dl>
  ${shortcuts().map(([keys, meaning]) => html`<div key=${keys}><dt>${keys.split(" ").map((one) => html`<kbd key=${one}>${one}</kbd> `)}</dt><dd>${meaning}</dd></div>`)}
</dl></div>`;

// What had the focus gets it back when an overlay closes.
let before = null;
effect(() => {
  if (overlay.value) before = document.activeElement;
  else if (before) { before.focus?.(); before = null; }
});
