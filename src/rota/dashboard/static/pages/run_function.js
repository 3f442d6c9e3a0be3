// A run of a function: its graph by scope beside its source, and what it waits for.
import { post } from "../api.js";
import { act, confirm } from "../dialog.js";
import { absolute, plural, whole } from "../format.js";
import { doesOperation, functionShape, MOST_NODES, paintFunction } from "../function_shape.js";
import { Graph } from "../graph.js";
import { html, useCallback, useMemo } from "../lib.js";
import { useResource } from "../resource.js";
import { segment } from "../router.js";
import { may } from "../session.js";
import { Badge, Bar, Button, Panel, Time } from "../ui.js";
import { SignalForm } from "./run_asks.js";
import { Source } from "./source_text.js";
import { SchemaForm } from "./workflow_form.js";

const MOST_WAITS = 20; // of each state
const OPEN = ["waiting_for_event", "executing", "dispatched", "waiting_for_subworkflow"];

export const isOpenRun = (run) => run.state === "running" || run.state === "paused";

/** Numbers of items by name: of the maps among these tokens. */
export function itemsOf(tokens) {
  const items = new Map();
  for (const one of tokens) {
    if (!one.items) continue;
    const [ended, all] = items.get(one.node_id) || [0, 0];
    items.set(one.node_id, [ended + (one.state === "completed" ? one.items : one.items_ended || 0), all + one.items]);
  }
  return items;
}

/** graph: as it is now, which gives the shape; shown: as it is painted, perhaps of the past. */
export function FunctionGraph({ graph, shown, tokens = [], chosen, onChoose, label }) {
  const isPast = shown !== graph;
  const painted = useCallback((shape, figures) => paintFunction(shape, figures, isPast ? undefined : itemsOf(tokens)), [tokens, isPast]);
  if (!graph.nodes.length) return html`<p class="empty">No operations yet.</p>`;
  return html`<${Graph} definition=${graph} graph=${shown} shaped=${functionShape} painted=${painted} flow="TB" isFollowing=${!isPast} chosen=${chosen} onChoose=${onChoose} label=${label} />
    ${graph.nodes.length > MOST_NODES && html`<p class="graph-legend">The first ${MOST_NODES} of ${whole(graph.nodes.length)} names: all are under operations.</p>`}`;
}

/** The operations that have not ended, by the states that the graph counts. */
export function useWaits(run, graph) {
  const counts = {};
  for (const node of graph?.nodes || []) for (const state of OPEN) counts[state] = (counts[state] || 0) + (node.tokens[state] || 0);
  const isOpen = run && isOpenRun(run);
  const lists = OPEN.map((state) => useResource(isOpen && counts[state] ? `/api/runs/${segment(run.id)}/tokens?state=${state}&limit=${MOST_WAITS}` : null, { on: ["run-", "task-"], every: 3000 }));
  const items = isOpen ? lists.flatMap((one, at) => (counts[OPEN[at]] ? one.data?.items || [] : [])) : [];
  const total = isOpen ? OPEN.reduce((sum, state) => sum + (counts[state] || 0), 0) : 0;
  return { items, total, reload: () => lists.forEach((one) => one.reload()) };
}

/** What the function does now, and each operation that it waits for with its action. */
export function Waits({ run, graph, waits, reload, onLine }) {
  const place = graph.function;
  if (!place || !isOpenRun(run)) return null;
  const tasks = new Map(graph.nodes.map((one) => [one.id, one]));
  const again = () => { waits.reload(); reload(); };
  const words = { dispatched: "The function waits for a worker", executing: "The function runs", waiting: "The function waits", ended: "The function has stopped" }[place.state];
  return html`<${Panel} title=${words} tools=${html`<span class="soft">${plural(place.operations, "operation")}${place.restarts ? `, restarted ${place.restarts} ×` : ""}</span>${place.task_id && html` <a href=${`/tasks/${segment(place.task_id)}`}>its task</a>`}`}>
    ${place.cancelled && html`<p class="body">It is to stop and undo: ${place.cancelled}</p>`}
    ${waits.items.length > 0 && html`<ul class="waits" aria-label="what it waits for">${waits.items.map((one) => html`<${Wait} key=${one.id} token=${one} node=${tasks.get(one.node_id)} run=${run} reload=${again} onLine=${onLine} />`)}</ul>`}
    ${waits.total > waits.items.length && waits.items.length > 0 && html`<p class="body faint">and ${whole(waits.total - waits.items.length)} more, under operations</p>`}
  <//>`;
}

function Wait({ token, node, run, reload, onLine }) {
  const send = (payload, said) => act(() => post(`/api/runs/${run.id}/signal`, { name: token.signal, payload, token_id: token.id }).finally(reload), said);
  return html`<li data-kind=${token.kind}>
    <div class="wait-head"><${Badge} state=${token.state}>${token.kind}<//> <b>${waitWords(token, node)}</b> <code class="faint">${token.path}</code>
      ${token.line !== null && html`<button type="button" class="button quiet small" onClick=${() => onLine(token.line)}>line ${token.line}</button>`}
      ${token.task_id && token.kind === "call" && html`<a href=${`/tasks/${segment(token.task_id)}`}>task ${token.task_id}</a>`}
      ${token.child_run_id && html`<a href=${`/runs/${segment(token.child_run_id)}`}>run ${token.child_run_id}</a>`}</div>
    ${token.items && html`<${Bar} share=${(token.items_ended || 0) / token.items} label=${`${token.items_ended || 0} of ${token.items} done`} />`}
    ${may("submit") && token.kind === "approval" && html`<${Approval} token=${token} send=${send} />`}
    ${may("submit") && (token.kind === "event" || token.kind === "receive") && html`<${SignalForm} name=${token.signal} send=${send} />`}
  </li>`;
}

function waitWords(token, node) {
  const task = node?.task || token.node_id;
  switch (token.kind) {
    case "event": return html`signal '${token.signal}'${token.due_at_ms && html` <span class="soft">until ${absolute(token.due_at_ms).slice(0, 19)}</span>`}`;
    case "receive": return `message '${token.signal}'`;
    case "approval": return token.title || token.node_id;
    case "sleep": return token.due_at_ms ? html`sleeps until ${absolute(token.due_at_ms).slice(0, 19)} <span class="soft">(<${Time} at=${token.due_at_ms} />)</span>` : "sleeps";
    case "call": return `task ${task} ${token.state === "executing" ? "runs" : "waits for a worker"}`;
    case "map": return `task ${task}: ${whole(token.items_ended || 0)} of ${whole(token.items || 0)} done`;
    case "run": return `child run of ${node?.workflow || token.node_id}`;
    default: return `${token.kind} ${token.node_id}`;
  }
}

function Approval({ token, send }) {
  const name = token.node_id;
  const refuse = async () => { if (await confirm({ title: `Refuse ${name}?`, text: "The run gets a rejection.", label: "refuse" })) await send({ approved: false }, `${name}: refused`); };
  if (token.form) return html`<${SchemaForm} key=${token.id} schema=${token.form} label="answer as JSON" verb="approve" send=${(value) => send({ ...value, approved: true }, `${name}: approved`)}
    tools=${html`<${Button} kind="danger" onClick=${refuse}>refuse<//>`} />`;
  return html`<div class="asks"><${Button} kind="primary" onClick=${() => send({ approved: true }, `${name}: approved`)}>approve<//><${Button} kind="danger" onClick=${refuse}>refuse<//></div>`;
}

/** The source, with the lines at which the function waits and the line of the chosen operation. */
export function FunctionSource({ run, code, waits, line }) {
  const marks = useMemo(() => {
    const found = new Map();
    for (const one of waits) if (one.line !== null) found.set(one.line, [...(found.get(one.line) || []), one]);
    return new Map([...found].map(([number, ones]) => [number, `◂ ${ones.length > 3 ? `${ones.length} operations` : ones.map((one) => one.path).join(", ")}`]));
  }, [waits]);
  const first = marks.size ? Math.min(...marks.keys()) : null;
  return html`<${Source} code=${code} marks=${marks} shown=${line || first} label=${`source of ${run.workflow}, version ${run.version}`} />`;
}

/** What is known of all operations of one name. */
export const factsOf = (node) => [
  ["does", doesOperation(node)],
  ["scopes", node.scopes.length ? `${node.scopes.slice(0, 8).join(", ")}${node.scopes.length > 8 ? ` and ${node.scopes.length > 99 ? "many" : node.scopes.length - 8} more` : ""}` : null],
  ["line", node.line],
  ["waits for", node.signal],
];
