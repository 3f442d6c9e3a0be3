// The log of a function as a table of operations by scope, and the values that it shows to callers.
import { withQuery } from "../api.js";
import { whole } from "../format.js";
import { totalOf } from "../graph_shape.js";
import { Json } from "../json.js";
import { Fragment, html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { here, link, place, segment } from "../router.js";
import { Badge, Duration, Empty, Problem, Time } from "../ui.js";
import { clip } from "./run_journal.js";

const PAGE = 200; // entries of the log: an operation has up to three
const STATES = { started: "executing", pending: "dispatched", done: "completed", failed: "failed" };

/** The scope of a path; a key in brackets may have any characters in it. */
export function scopeOf(path) {
  const plain = path.endsWith("]") && path.includes("[") ? path.slice(0, path.indexOf("[")) : path;
  return plain.includes("/") ? plain.slice(0, plain.lastIndexOf("/")) : "";
}

/** Entries as one row an operation, by scope in the order in which the scopes came up. */
export function rowsByScope(entries) {
  const rows = new Map(), scopes = new Map();
  for (const entry of entries) {
    const known = rows.get(entry.path);
    if (known) {
      if (entry.state === "delivered") known.isSeen = true;
      else Object.assign(known, { ...entry, request: known.request ?? entry.request, line: known.line ?? entry.line, started_at_ms: known.started_at_ms ?? entry.started_at_ms });
    } else if (entry.state !== "delivered") {
      const row = { ...entry }, scope = scopeOf(entry.path);
      rows.set(entry.path, row);
      scopes.set(scope, [...(scopes.get(scope) || []), row]);
    }
  }
  return [...scopes];
}

export function Operations({ run, isLive, onLine }) {
  const after = Number(place.value.query.after) || 0;
  const log = useResource(withQuery(`/api/runs/${segment(run.id)}/operations`, { after: after || undefined, limit: PAGE }), isLive ? { on: ["run-", "task-"], every: 3000 } : {});
  if (!log.data) return html`<${Problem} of=${log} />`;
  const scopes = rowsByScope(log.data.items);
  const to = (number) => link(here(), { ...place.value.query, after: number > 0 ? number : "" });
  return html`${scopes.length ? html`<div class="scroll"><table class="operations"><thead><tr><th>operation</th><th>kind</th><th>state</th><th class="right hide-narrow">attempts</th><th class="right hide-narrow">took</th><th>result or error</th></tr></thead><tbody>
      ${scopes.map(([scope, rows]) => html`<${Fragment} key=${scope}>${scope && html`<tr class="scope-row"><th colspan="6" scope="rowgroup">${scope}</th></tr>`}${rows.map((row) => html`<${Row} key=${row.path} row=${row} scope=${scope} onLine=${onLine} />`)}<//>`)}
    </tbody></table></div>` : html`<${Empty}>Nothing is recorded${after ? " after that" : " yet"}.<//>`}
    ${(after > 0 || log.data.next_after !== null) && html`<nav class="pager" aria-label="pages of the log">
      ${after > 0 && html`<a class="button" href=${to(0)}>first</a><a class="button" href=${to(after - PAGE)}>earlier</a>`}
      <span class="faint">entries ${whole(after + 1)}–${whole(after + log.data.items.length)} of the log</span>
      ${log.data.next_after !== null && html`<a class="button" href=${to(log.data.next_after)}>later</a>`}</nav>`}`;
}

function Row({ row, scope, onLine }) {
  const [isOpen, setOpen] = useState(false);
  const value = row.error ?? row.result;
  const isEnded = row.state === "done" || row.state === "failed";
  return html`<tr>
      <td><code>${scope ? row.path.slice(scope.length + 1) : row.path}</code>${row.line ? html` <button type="button" class="button quiet small" onClick=${() => onLine(row.line)}>line ${row.line}</button>` : null}${row.can_undo && html` <span class="chip">can be undone</span>`}</td>
      <td>${row.kind}</td><td><${Badge} state=${STATES[row.state]}>${row.state}<//></td><td class="right number hide-narrow">${row.attempts ?? 1}</td>
      <td class="right hide-narrow">${row.started_at_ms ? html`<${Duration} from=${row.started_at_ms} to=${isEnded ? row.ended_at_ms ?? row.started_at_ms : null} />` : "–"}</td>
      <td>${value === undefined || value === null ? html`<${Asked} row=${row} />` : html`<button type="button" class=${`json-toggle operation-value ${row.error ? "error-text" : ""}`} aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${row.error ? `${row.error.type || "error"}: ${String(row.error.message ?? "").slice(0, 200)}` : clip(value)}</button>`}</td></tr>
    ${isOpen && html`<tr><td colspan="6"><${Json} value=${value} label=${row.error ? "error" : "result"} /></td></tr>`}`;
}

/** What a pending operation asked for. */
function Asked({ row }) {
  const { request } = row;
  if (!request) return null;
  if (request.type === "sleep") return html`<span class="soft">until <${Time} at=${request.due_at_ms} /></span>`;
  return html`<span class="soft">${request.task || request.call?.task || request.workflow || request.name || request.title || ""}</span>`;
}

const STREAM_PAGE = 50;
const MOST_STREAMS = 20;

/** Published values, and the streams that the graph knows. */
export function Published({ run, graph, isLive }) {
  const state = run.context?.state || {};
  const streams = (graph?.nodes || []).filter((one) => one.kind === "stream");
  return html`<div>
    <h3 class="part">published</h3>${Object.keys(state).length ? html`<${Json} value=${state} label="published values" />` : html`<${Empty}>No published values.<//>`}
    ${streams.slice(0, MOST_STREAMS).map((one) => html`<${Stream} key=${one.id} run=${run} name=${one.id} count=${totalOf(one.tokens)} isLive=${isLive} />`)}
    ${streams.length > MOST_STREAMS && html`<p class="body faint">and ${whole(streams.length - MOST_STREAMS)} more streams</p>`}
  </div>`;
}

function Stream({ run, name, count, isLive }) {
  const [from, setFrom] = useState(null); // null: the last ones
  const after = from ?? Math.max(0, count - STREAM_PAGE);
  const found = useResource(withQuery(`/api/runs/${segment(run.id)}/streams/${segment(name)}`, { after: after || undefined, limit: STREAM_PAGE }), isLive ? { on: ["run-", "task-"], every: 3000 } : {});
  const shown = found.data?.items.length || 0;
  return html`<h3 class="part">stream ${name}</h3>
    ${found.data ? html`<ol class="stream" start=${after + 1} aria-label=${`stream ${name}`}>${found.data.items.map((value, at) => html`<li key=${after + at}><span class="faint number">${whole(after + at + 1)}</span> <code>${clip(value)}</code></li>`)}</ol>` : html`<${Problem} of=${found} />`}
    ${(after > 0 || shown === STREAM_PAGE) && html`<nav class="pager" aria-label=${`pages of stream ${name}`}>
      ${after > 0 && html`<button type="button" class="button" onClick=${() => setFrom(Math.max(0, after - STREAM_PAGE))}>earlier</button>`}
      <span class="faint">${whole(after + 1)}–${whole(after + shown)}</span>
      ${shown === STREAM_PAGE && html`<button type="button" class="button" onClick=${() => setFrom(after + shown)}>later</button>`}
      ${from !== null && html`<button type="button" class="button" onClick=${() => setFrom(null)}>last</button>`}</nav>`}`;
}
