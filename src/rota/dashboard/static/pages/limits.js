// The limits of keys: how much of each is used, what waits for it, and changes by operators.
import { del, put, withQuery } from "../api.js";
import { now } from "../clock.js";
import { FormDialog, act, confirm } from "../dialog.js";
import { plural, shellWord, whole } from "../format.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { address } from "../root.js";
import { link, segment } from "../router.js";
import { may } from "../session.js";
import { Badge, Bar, Button, Count, Empty, Field, Header, Pager, Panel, Problem, Tabs } from "../ui.js";
import { pace, seconds, toMs } from "./rates.js";

const PAGE = 50;
const KINDS = ["concurrency", "rate"];
const pathOf = (key) => `/api/limits/${segment(key)}`;

export default function Limits({ query }) {
  const path = withQuery("/api/limits", { kind: query.kind, prefix: query.prefix, cursor: query.cursor, limit: PAGE });
  const limits = useResource(path, { on: ["task-"], every: 1000 });
  const [edited, setEdited] = useState(null); // null | {} for a new one | a limit
  const items = limits.data?.items || [];
  return html`<${Header} title="Limits" sub="how many tasks of a key run at once, and how often they start">
      ${may("operate") && html`<${Button} onClick=${() => setEdited({})}>set a limit …<//>`}<//>
    <${Tabs} label="kinds" items=${["", ...KINDS].map((kind) => ({ label: kind || "all", href: link("/limits", { kind, prefix: query.prefix }), isOn: (query.kind || "") === kind }))} />
    <div class="filters" role="search"><${Field} name="prefix" label="key begins with" data-search=${true} />${query.prefix && html`<a class="button quiet" href=${link("/limits", { kind: query.kind })}>clear</a>`}</div>
    <${Panel}>
      ${items.length ? html`<${Table} items=${items} edit=${setEdited} reload=${limits.reload} />`
        : limits.data ? html`<${Nothing} query=${query} />` : html`<${Problem} of=${limits} />`}
      ${limits.data && limits.problem && html`<${Problem} of=${limits} />`}
      <${Pager} next=${limits.data?.next_cursor} shown=${plural(items.length, "limit")} first="first" further="next" />
    <//>
    ${edited && html`<${Edit} limit=${edited} close=${() => setEdited(null)} reload=${limits.reload} />`}`;
}

const SAMPLE = { name: "render", concurrency: { key: "user:1", limit: 2 }, rate: { key: "openai", limit: 5, per_ms: 1000 } };

function Nothing({ query }) {
  if (query.kind || query.prefix || query.cursor) return html`<${Empty}>No limit matches.<//>`;
  return html`<div class="empty"><p>No limit yet. A limit exists as long as a task names its key:</p>
    <pre class="sample">${`curl -X POST ${shellWord(`${address}/api/tasks`)} -H 'content-type: application/json' \\\n  -d ${shellWord(JSON.stringify(SAMPLE))}`}</pre>
    <p>At most two tasks of <code>user:1</code> run at once then, and five of <code>openai</code> start in a second, whatever their queue.</p></div>`;
}

const Table = ({ items, edit, reload }) => html`<div class="scroll"><table class="cards limits">
  <thead><tr><th>key</th><th class="hide-narrow">kind</th><th>use</th><th class="right">waiting</th>${may("operate") && html`<th class="tight"></th>`}</tr></thead>
  <tbody>${items.map((one) => html`<tr key=${one.key}>
    <td class="clip"><b>${one.key}</b> ${one.pinned && html`<span class="chip" title="set by an operator: tasks do not change it">pinned</span>`} ${one.limit === 0 && html`<${Badge} state="paused" />`}</td>
    <td class="hide-narrow soft">${one.kind}</td>
    <td class="use"><${Use} limit=${one} /></td>
    <td class="right" data-label="waiting"><span class=${one.waiting ? "" : "faint"}><${Count} of=${one.waiting} /></span></td>
    ${may("operate") && html`<td class="tight"><${Actions} limit=${one} edit=${edit} reload=${reload} /></td>`}</tr>`)}</tbody></table></div>`;

function Use({ limit }) {
  if (limit.kind === "concurrency") {
    const isFull = limit.running >= limit.limit;
    return html`<${Bar} share=${limit.limit ? limit.running / limit.limit : 1} state=${limit.limit === 0 ? "paused" : isFull ? "queued" : "running"} label=${`slots of ${limit.key}`} />
      <span class="number"> ${whole(limit.running)} of ${whole(limit.limit)} running</span>`;
  }
  return html`<span class="number">${pace(limit)}</span><span class="soft">${opening(limit)}</span>`;
}

function opening(limit) {
  if (limit.limit === 0) return ", nothing starts";
  if (limit.opens_at_ms === null) return ", free now";
  const ms = limit.opens_at_ms - now.value;
  return `, next start ${ms < 100 ? "now" : `in ${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`}`;
}

function Actions({ limit, edit, reload }) {
  const pin = async () => {
    if (!(await confirm({ title: `Pin ${limit.key}?`, text: `It stays at ${size(limit)}. Tasks that declare another value no longer change it.`, label: "pin it", kind: "primary" }))) return;
    await act(() => put(pathOf(limit.key), { pinned: true }), `${limit.key} is pinned`);
    reload();
  };
  const unpin = async () => {
    if (!(await confirm({ title: `Unpin ${limit.key}?`, text: "The value that tasks declared last counts again, at once. If no queued or running task names it, the limit is removed.", label: "unpin it", kind: "primary" }))) return;
    await act(() => del(pathOf(limit.key)), (answer) => (answer.limit ? `${limit.key}: ${size(answer.limit)}` : `${limit.key} is removed: no task names it`));
    reload();
  };
  return html`<span class="nowrap"><${Button} kind="small" onClick=${() => edit(limit)}>change …<//> ${limit.pinned ? html`<${Button} kind="small" onClick=${unpin}>unpin<//>` : html`<${Button} kind="small" onClick=${pin}>pin<//>`}</span>`;
}

const size = (limit) => (limit.kind === "rate" ? pace(limit) : `${whole(limit.limit)} at once`);

function Edit({ limit, close, reload }) {
  const isNew = limit.key === undefined;
  const [kind, setKind] = useState(limit.kind || "concurrency");
  const [count, setCount] = useState(String(limit.limit ?? 1));
  const isRate = kind === "rate";
  const submit = async (fields) => {
    const key = isNew ? fields.key : limit.key;
    const body = { limit: Number(fields.limit) };
    if (isRate) { body.per_ms = toMs(fields.per); body.burst = Number(fields.burst); }
    const made = await put(pathOf(key), body);
    reload();
    return `${made.key}: ${size(made)}, pinned`;
  };
  return html`<${FormDialog} title=${isNew ? "Set a limit" : `Change ${limit.key}`} label=${count === "0" ? "pause it" : "set and pin"} submit=${submit} close=${close}>
    ${isNew && html`<label class="field"><span>key</span><input name="key" required maxlength="300" autocomplete="off" spellcheck=${false} placeholder="user:1" /></label>
    <label class="field"><span>kind</span><select value=${kind} onChange=${(event) => setKind(event.target.value)}><option value="concurrency">concurrency: tasks that run at once</option><option value="rate">rate: starts in a period</option></select></label>`}
    <label class="field"><span>${isRate ? "starts" : "tasks at once"}, 0 pauses the key</span><input name="limit" type="number" min="0" required value=${count} onInput=${(event) => setCount(event.target.value)} /></label>
    ${isRate && html`<label class="field"><span>in seconds</span><input name="per" type="number" min="0.001" step="any" required defaultValue=${seconds(limit.per_ms ?? 1000)} /></label>
    <label class="field"><span>tasks that may start at once after a quiet time</span><input name="burst" type="number" min="1" required defaultValue=${limit.burst ?? 1} /></label>`}
    <p class="hint">${count === "0" ? "No task of this key starts until the limit is raised." : "It applies at once, also to tasks that already wait."} Running tasks continue. The limit is pinned: tasks that declare another value do not change it.</p><//>`;
}
