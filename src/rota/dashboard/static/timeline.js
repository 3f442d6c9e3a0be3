// The timeline of a run: when each token waited and worked. A node with many visits has one line.
import { Fragment, html } from "./lib.js";
import { now } from "./clock.js";
import { absolute, duration, plural, short } from "./format.js";
import { leadingState, totalOf } from "./graph_shape.js";
import { segment } from "./router.js";
import { tone } from "./states.js";

export const PER_NODE = 12; // tokens of a node that have lines of their own
const LINE = 20; // pixels
const MOST_TRIES = 8; // attempts of a task that are drawn, the last ones
const WIDTH = 1000; // units of a line, however wide it is drawn

/** graph: a run's figures with spans; tokens: some of each node; run: its times. */
export function Timeline({ run, graph, tokens, onChoose }) {
  const first = run.created_at_ms;
  const last = Math.max(run.finished_at_ms ?? now.value, first + 1);
  const at = (ms) => ((Math.min(Math.max(ms, first), last) - first) / (last - first)) * WIDTH;
  const lines = linesOf(graph, tokens);
  const kinds = new Map(graph.nodes.map((one) => [one.id, one.kind]));
  return html`<div class="spans" role="list" aria-label="timeline">
    <span></span><${Axis} length=${last - first} />
    ${lines.map((line) => (line.node
      ? html`<${Many} key=${`n${line.node.id}`} node=${line.node} at=${at} last=${last} state=${run.state} onChoose=${onChoose} />`
      : html`<${One} key=${line.token.id} token=${line.token} kind=${kinds.get(line.token.node_id)} at=${at} last=${last} isOver=${run.finished_at_ms !== null} />`))}
  </div>
  <p class="graph-legend"><span><i class="swatch is-waiting"></i>waiting for a worker</span><span data-tone="blue"><i class="swatch"></i>running</span><span data-tone="green"><i class="swatch"></i>succeeded</span><span data-tone="red"><i class="swatch"></i>an attempt failed</span><span data-tone="teal"><i class="swatch"></i>waiting for something else</span></p>`;
}

function linesOf(graph, tokens) {
  const many = new Set(graph.nodes.filter((one) => totalOf(one.tokens) > PER_NODE).map((one) => one.id));
  const lines = tokens.filter((one) => !many.has(one.node_id)).map((token) => ({ token, from: token.created_at_ms }));
  for (const node of graph.nodes) if (many.has(node.id)) lines.push({ node, from: node.first_at_ms });
  return lines.sort((left, right) => left.from - right.from);
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5, 6048e5];

function Axis({ length }) {
  const step = STEPS.find((one) => length / one <= 6) || length / 5;
  const marks = [];
  for (let ms = 0; ms <= length; ms += step) marks.push(ms);
  return html`<svg class="axis" aria-hidden="true">${marks.map((ms) => html`<g key=${ms}><line x1=${`${(ms / length) * 100}%`} x2=${`${(ms / length) * 100}%`} y1="13" y2="18" />
    <text x=${`${(ms / length) * 100}%`} y="11" text-anchor=${ms / length > 0.94 ? "end" : ms ? "middle" : "start"}>${ms ? `+${duration(ms).replace(".0 s", " s")}` : "0"}</text></g>`)}</svg>`;
}

const Line = ({ children, label, height = LINE }) => html`<svg viewBox=${`0 0 ${WIDTH} ${height}`} height=${height} preserveAspectRatio="none" role="img" aria-label=${label}><title>${label}</title><line x1="0" x2=${WIDTH} y1=${height - 0.5} y2=${height - 0.5} />${children}</svg>`;

const Box = ({ from, to, kind = "", y = 4, height = 12 }) => html`<rect class=${`span ${kind}`} x=${from} y=${y} width=${Math.max(2, to - from)} height=${height} vector-effect="non-scaling-stroke" />`;

function One({ token, kind, at, last, isOver }) {
  const ended = token.finished_at_ms ?? last;
  const label = token.path ? token.path.replace(/#1$/, "") : nameOf(token);
  const shown = isOver && token.finished_at_ms === null ? "cancelled" : token.state;
  const tries = triesOf(token, ended);
  const failed = tries.filter((one) => one.isFailed).length;
  const words = [token.state.replaceAll("_", " "), `from ${absolute(token.created_at_ms)}`, token.started_at_ms && `waited ${duration(token.started_at_ms - token.created_at_ms)}`, `took ${duration(ended - token.created_at_ms)}`, failed && plural(failed, "attempt that did not finish it", "attempts that did not finish it"), token.worker_id && `on ${token.worker_id}`].filter(Boolean).join(", ");
  const href = token.task_id && token.kind !== "map" ? `/tasks/${segment(token.task_id)}` : token.child_run_id ? `/runs/${segment(token.child_run_id)}` : null;
  const step = tries.length > 1 ? 8 : 12;
  return html`<span class="who" role="listitem">${href ? html`<a href=${href}>${label}</a>` : label}${failed > 0 && html` <span class="faint">${tries.length} attempts</span>`}</span>
    <span data-tone=${tone(shown)}><${Line} label=${`${label}: ${words}`} height=${Math.max(LINE, 6 + tries.length * (step + 1))}>
      ${token.task_id && token.kind !== "map"
        ? tries.map((one, index) => html`<${Fragment} key=${index}><${Box} kind="is-waiting" from=${at(one.queued)} to=${at(one.started ?? one.ended)} y=${4 + index * (step + 1)} height=${step} />
          ${one.started !== null && html`<${Box} kind=${one.isFailed ? "is-attempt" : ""} from=${at(one.started)} to=${at(one.ended)} y=${4 + index * (step + 1)} height=${step} />`}<//>`)
        : html`<g data-tone=${WAITING_KINDS.has(kind) && !isBad(token) ? "teal" : tone(shown)}><${Box} from=${at(token.created_at_ms)} to=${at(ended)} y=${6} height=${8} /></g>`}
    <//></span>`;
}

/** A token as the journal names it: its node, and the index of each branch that it is in. */
const nameOf = (token) => token.node_id + (token.branch_index === null ? "" : token.path_id.split(".").filter((_, place) => place && place % 2 === 0).map((index) => `[${index}]`).join(""));

/** Attempts of a token's task, each from when it began to wait: those that came to nothing, then the last. */
function triesOf(token, ended) {
  const tries = [];
  let queued = token.created_at_ms;
  for (const one of token.attempts) {
    tries.push({ queued, started: one.started_at_ms, ended: one.ended_at_ms, isFailed: true });
    queued = one.ended_at_ms;
  }
  const isAnother = token.started_at_ms !== null && token.started_at_ms >= queued;
  if (isAnother || token.finished_at_ms === null || !tries.length) tries.push({ queued, started: isAnother ? token.started_at_ms : null, ended, isFailed: false });
  return tries.slice(-MOST_TRIES);
}

// Nodes of these kinds have nobody work for them: all their time is waiting.
const WAITING_KINDS = new Set(["workflow", "wait_for", "approval", "sleep_ms", "event", "receive", "run", "sleep"]);
const isBad = (token) => token.state === "failed" || token.state === "timed_out" || token.state === "cancelled";

function Many({ node, at, last, state, onChoose }) {
  const total = totalOf(node.tokens), to = node.last_at_ms ?? last;
  const label = `${node.id}: ${short(total)} tokens, ${Object.entries(node.tokens).map(([name, count]) => `${short(count)} ${name.replaceAll("_", " ")}`).join(", ")}, from ${absolute(node.first_at_ms)}, ${duration(to - node.first_at_ms)}`;
  return html`<span class="who" role="listitem"><button type="button" class="json-toggle" title="list them" onClick=${() => onChoose(node.id)}>${node.id} <b class="faint">× ${short(total)}</b></button></span>
    <span data-tone=${tone(leadingState(node.tokens, state))}><${Line} label=${label}><${Box} kind="is-many" from=${at(node.first_at_ms)} to=${at(to)} y=${3} height=${14} /><//></span>`;
}
