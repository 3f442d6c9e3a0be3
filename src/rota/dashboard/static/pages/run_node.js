// One node of a run: its definition, and its tokens page by page, because there may be 10,000.
import { withQuery } from "../api.js";
import { plural, whole } from "../format.js";
import { awaited, byWeight, does, nameOf } from "../graph_shape.js";
import { html, useEffect, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { segment } from "../router.js";
import { Badge, Button, Duration, Empty, Facts, Panel, Problem } from "../ui.js";

const PAGE = 25;

export function NodePanel({ run, definition, facts = null, graph, id, isPast, onClose, isLive, SubRun }) {
  const node = definition.nodes[id];
  const painted = graph.nodes.find((one) => one.id === id);
  const [state, setState] = useState("");
  const [cursors, setCursors] = useState([]); // of the pages before this one
  useEffect(() => { setState(""); setCursors([]); }, [id]);
  const path = withQuery(`/api/runs/${run.id}/tokens`, { node: id, state, cursor: cursors.at(-1), limit: PAGE });
  const tokens = useResource(painted ? path : null, isLive ? { on: ["run-", "task-"], every: 3000 } : {});
  if (!node || !painted) return null;
  const states = byWeight(painted.tokens);
  const choose = (chosen) => { setState(chosen === state ? "" : chosen); setCursors([]); };
  const next = tokens.data?.next_cursor;
  return html`<${Panel} title=${`Node ${id}`} tools=${html`${isPast && html`<span class="past">tokens as they are now</span>`}<${Button} kind="quiet" onClick=${onClose} aria-label="close">✕<//>`}>
    <div class="body"><${Facts} items=${facts ? facts(node) : factsOf(id, node, definition)} /></div>
    ${states.length > 0 && html`<div class="tabs chips-in"><span class="unseen">states</span>${states.map(([one, count]) => html`<button key=${one} type="button" class=${`button small ${state === one ? "" : "quiet"}`} aria-pressed=${state === one} onClick=${() => choose(one)}><${Badge} state=${one}>${whole(count)} ${one.replaceAll("_", " ")}<//></button>`)}</div>`}
    ${tokens.data ? html`<${Tokens} items=${tokens.data.items} SubRun=${SubRun} isTask=${Boolean(node.task)} />` : html`<${Problem} of=${tokens} />`}
    ${(cursors.length > 0 || next) && html`<nav class="pager" aria-label="pages of tokens">
      ${cursors.length > 0 && html`<button type="button" class="button" onClick=${() => setCursors(cursors.slice(0, -1))}>earlier</button>`}
      <span class="faint">page ${cursors.length + 1}, ${plural(tokens.data?.items.length || 0, "token")}</span>
      ${next && html`<button type="button" class="button" onClick=${() => setCursors([...cursors, next])}>later</button>`}
    </nav>`}
  <//>`;
}

function factsOf(id, node, definition) {
  const leaving = (definition.transitions || []).map((one, at) => ({ ...one, name: nameOf(one, at) })).filter((one) => one.from === id);
  return [
    ["does", does(node)],
    ["input", node.input && html`<code>${JSON.stringify(node.input)}</code>`],
    ["queue", node.task && (node.queue || "default")],
    ["requires", node.requires?.length ? node.requires.join(", ") : null],
    ["attempts", node.retry?.max_attempts],
    ["undone by", node.compensate],
    ["waits for", awaited(id, node)],
    ["goes on", leaving.length ? html`<span class="details">${leaving.map((one) => html`<span key=${one.name}>→ ${one.to}${one.condition ? html` if <code>${one.condition}</code>` : ""}${one.foreach ? html` for each of <code>${one.foreach}</code>` : ""}${one.priority && one.priority !== 1 ? ` (tier ${one.priority})` : ""}</span>`)}</span>` : "nowhere: a token ends here"],
  ];
}

function Tokens({ items, SubRun }) {
  const [open, setOpen] = useState("");
  const isFunction = Boolean(items[0]?.path);
  if (!items.length) return html`<${Empty}>The run has not been here.<//>`;
  return html`<div class="scroll"><table><thead><tr><th>token</th><th>${isFunction ? "operation" : "branch"}</th><th>state</th><th class="hide-narrow">worker</th><th class="right">took</th></tr></thead><tbody>
    ${items.map((one) => html`<tr key=${one.id}>
      <td class="nowrap">${one.task_id && one.kind !== "map" ? html`<a href=${`/tasks/${segment(one.task_id)}`}>task of #${numberOf(one)}</a>` : `#${numberOf(one)}`}
        ${one.child_run_id && html` <button type="button" class="button small" aria-expanded=${open === one.child_run_id} onClick=${() => setOpen(open === one.child_run_id ? "" : one.child_run_id)}>${open === one.child_run_id ? "close" : "open"} child run</button>`}</td>
      <td class="number">${isFunction ? html`<code>${one.path}</code>` : one.branch_index === null ? "–" : `[${one.branch_index}] of ${whole(one.branch_total)}`}</td>
      <td><${Badge} state=${one.state} />${one.items && html` <span class="chip">${whole(one.items_ended || 0)} of ${whole(one.items)} items</span>`}${one.compensates_token_id && html` <span class="chip">undoes</span>`}${one.attempts.length > 0 && html` <span class="chip">${plural(one.attempts.length, "failed attempt")}</span>`}${one.error && html`<span class="sub error-text">${one.error.type}: ${one.error.message}</span>`}</td>
      <td class="hide-narrow">${one.worker_id && html`<a href=${`/workers/${segment(one.worker_id)}`}>${one.worker_id}</a>`}</td>
      <td class="right"><${Duration} from=${one.created_at_ms} to=${one.finished_at_ms} /></td></tr>`)}
  </tbody></table></div>
  ${open && items.some((one) => one.child_run_id === open) && html`<${SubRun} id=${open} />`}`;
}

const numberOf = (token) => token.id.split(".").at(-1);
