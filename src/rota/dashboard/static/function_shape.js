// The shape of a function's graph: what it did by name, inside boxes for the scopes that it opened.
// Pure functions of a run's graph, in the terms of graph_shape.js.
import { leadingState } from "./graph_shape.js";

export const MOST_NODES = 250; // names that are drawn; the list of operations has all
const MOST_WORDS = 40; // characters of a name of a task or signal

/** What an operation does, in a few words. */
export function doesOperation({ kind, task, workflow, signal }) {
  const clip = (text) => (text && text.length > MOST_WORDS ? `${text.slice(0, MOST_WORDS)}…` : text || "");
  switch (kind) {
    case "call": return `task ${clip(task)}`;
    case "map": return `maps ${clip(task)}`;
    case "run": return `runs ${clip(workflow)}`;
    case "sleep": return "sleeps";
    case "event": return `signal ${clip(signal)}`;
    case "receive": return `receives ${clip(signal)}`;
    case "reply": return "replies";
    case "publish": return "publishes";
    case "stream": return "writes to a stream";
    case "marker": return "code change";
    case "choice": return "which came first";
    case "once": return "step, at most once";
    default: return kind;
  }
}

/** Nodes, edges and boxes of a run's graph. A repeated name is one node. */
export function functionShape(graph, direction) {
  const shown = graph.nodes.slice(0, MOST_NODES);
  const groups = new Map();
  const nodes = shown.map((one) => {
    const sub = one.kind === "step" ? "" : doesOperation(one);
    const parent = groupOf(one.scopes, groups);
    const isMap = one.kind === "map";
    const width = Math.min(230, Math.max(isMap ? 160 : 112, Math.max(one.id.length * 7.6, sub.length * 6.2) + (isMap ? 72 : 60)));
    return { id: one.id, kind: one.kind, sub, parent, stacked: isMap ? "a task for each item" : null, isFirst: one.id === graph.initial_node, width, height: sub ? 54 : 36 };
  });
  const known = new Set(nodes.map((one) => one.id));
  const edges = graph.transitions.filter((one) => one.from !== one.to && known.has(one.from) && known.has(one.to))
    .map((one) => ({ id: one.id, transition: one.id, from: one.from, to: one.to, label: "", title: one.id, labelWidth: 0 }));
  return { direction, nodes, edges, groups: [...groups.values()], ranksep: groups.size ? 30 : 22 };
}

const PART = /^(.*?)(?:#(\d+))?(?:\.([^.]*))?$/s;

/** The box of a name: the scopes that all its operations were in. Branches share a box. */
function groupOf(scopes, groups) {
  const paths = scopes.map((scope) => (scope === "root" ? [] : scope.split("/").map((part) => PART.exec(part).slice(1, 3))));
  const depth = Math.min(...paths.map((path) => path.length));
  let parent = null;
  for (let at = 0; at < depth && at < 12; at += 1) {
    const [name, count] = paths[0][at];
    if (paths.some((path) => path[at][0] !== name)) break;
    const isOne = paths.every((path) => path[at][1] === count);
    const label = count === undefined ? name : isOne ? `${name} ${count}` : name;
    const id = `${parent || "scope"}/${label}`;
    if (!groups.has(id)) groups.set(id, { id, label, parent });
    parent = id;
  }
  return parent;
}

/** How a run's graph paints that shape. items: name → [ended, all] of its maps. */
export function paintFunction(shape, graph, items = new Map()) {
  const nodes = new Map(graph.nodes.map((one) => {
    const [ended, all] = items.get(one.id) || [0, 0];
    const tokens = all ? { completed: ended, ...(all > ended && { [openState(one.tokens)]: all - ended }) } : one.tokens;
    return [one.id, { tokens, state: leadingState(one.tokens, graph.state) }];
  }));
  const taken = new Map(graph.transitions.map((one) => [one.id, one]));
  const edges = new Map(shape.edges.map((edge) => [edge.id, { count: taken.get(edge.id)?.taken || 0, notTaken: 0 }]));
  return { nodes, edges };
}

const openState = (tokens) => ["failed", "timed_out", "cancelled", "executing", "dispatched"].find((state) => tokens[state]) || "cancelled";
