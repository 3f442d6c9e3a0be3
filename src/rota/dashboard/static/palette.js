// The command palette: finds pages, task states, queues, workers and ids by a few letters.
import { html, useEffect, useRef, useState } from "./lib.js";
import { Help, overlay } from "./keyboard.js";
import { useResource } from "./resource.js";
import { root } from "./root.js";
import { go, link, pages, segment } from "./router.js";
import { TASK_STATES } from "./states.js";
import { switchTheme } from "./theme_switch.js";
import { togglePause } from "./live.js";

const MOST_SHOWN = 12;

export function Overlay() {
  const dialog = useRef(null);
  const kind = overlay.value;
  useEffect(() => { if (kind) dialog.current.showModal(); }, [kind]);
  if (!kind) return null;
  const close = () => { overlay.value = null; };
  return html`<dialog ref=${dialog} class="overlay" aria-label=${kind === "help" ? "keys" : "command palette"} onCancel=${close} onClick=${(event) => { if (event.target === dialog.current) close(); }}>
    ${kind === "help" ? html`<${Help} />` : html`<${Palette} close=${close} />`}
  </dialog>`;
}

function Palette({ close }) {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const queues = useResource("/api/queues").data?.items || [];
  const workers = useResource("/api/workers").data?.items || [];
  const found = search(text, [...pageItems(), ...actionItems(), ...queues.map(queueItem), ...workers.map(workerItem)]);
  const at = Math.min(chosen, Math.max(0, found.length - 1));
  const pick = (item) => { close(); if (item.href) go(item.href); else item.run(); };
  const press = (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setChosen((at + (event.key === "ArrowDown" ? 1 : found.length - 1)) % Math.max(1, found.length));
    } else if (event.key === "Enter" && found[at]) {
      event.preventDefault();
      pick(found[at]);
    }
  };
  return html`<div class="palette">
    <input autofocus type="text" role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant=${found.length ? `palette-${at}` : undefined}
      placeholder="page, queue, worker, task or run id" aria-label="command" value=${text} autocomplete="off" spellcheck=${false}
      onInput=${(event) => { setText(event.target.value); setChosen(0); }} onKeyDown=${press} />
    <ul id="palette-list" role="listbox">
      ${found.map((item, index) => html`<li key=${item.kind + item.label} id=${`palette-${index}`} role="option" aria-selected=${index === at} onClick=${() => pick(item)} onMouseMove=${() => setChosen(index)}>
        <span>${item.label}</span><span class="faint">${item.kind}</span></li>`)}
      ${!found.length && html`<li class="faint">nothing found</li>`}
    </ul>
  </div>`;
}

const pageItems = () => [
  ...pages.filter((one) => one.nav).map((one) => ({ label: one.nav.label, kind: "page", href: one.path })),
  ...TASK_STATES.map((state) => ({ label: `${state} tasks`, kind: "list", href: link("/tasks", { state }) })),
];
const actionItems = () => [
  { label: "light or dark", kind: "action", run: switchTheme },
  { label: "pause or resume live updates", kind: "action", run: togglePause },
  { label: "keys", kind: "action", run: () => { overlay.value = "help"; } },
  { label: "API reference", kind: "page", run: () => { location.href = `${root}/docs`; } },
];
const queueItem = (queue) => ({ label: queue.name, kind: "queue", href: link("/tasks", { queue: queue.name }) });
const workerItem = (worker) => ({ label: worker.id, kind: "worker", href: `/workers/${segment(worker.id)}` });

function search(text, items) {
  const words = text.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const id = text.trim();
  const byId = /^[0-9a-f]{16}$/.test(id)
    ? [{ label: id, kind: "task", href: `/tasks/${id}` }, { label: id, kind: "run", href: `/runs/${id}` }]
    : [];
  const byName = words.length === 1 && id.length > 1 ? [{ label: `tasks named ${id}`, kind: "search", href: link("/tasks", { name: id }) }] : [];
  const fits = items.filter((item) => words.every((word) => `${item.label} ${item.kind}`.toLowerCase().includes(word)));
  return [...byId, ...fits.slice(0, MOST_SHOWN), ...(byId.length ? [] : byName)];
}
