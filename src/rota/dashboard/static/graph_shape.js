// The shape of a workflow's graph: its nodes, its joins as nodes of their own, and the transitions
// between them with their labels. Pure functions of a definition and of a run's graph.

const MOST_LABEL = 30; // characters; the whole text is one hover away
const CHARACTER = 6.1; // pixels, on average
const KINDS = ["task", "workflow", "wait_for", "signal", "sleep_ms", "end"];

export const kindOf = (node) => KINDS.find((kind) => node[kind] !== undefined && node[kind] !== null) || (node.approval ? "approval" : "pass");

/** What a node does, in a few words. */
export function does(node) {
  switch (kindOf(node)) {
    case "task": return node.task;
    case "workflow": return `workflow ${node.workflow}`;
    case "wait_for": return `waits for ${node.wait_for.repeat ? "each " : ""}${node.wait_for.event}${node.wait_for.until ? ` until ${node.wait_for.until.event}` : ""}`;
    case "signal": return `signals ${node.signal.name}${node.signal.run ? ` to ${node.signal.run}` : ""}`;
    case "sleep_ms": return `sleeps ${node.sleep_ms >= 1000 ? `${node.sleep_ms / 1000} s` : `${node.sleep_ms} ms`}`;
    case "approval": return "approval";
    case "end": return `ends: ${node.end}`;
    default: return "passes on";
  }
}

/** The name of the signal that a node waits for, or null. */
export const awaited = (id, node) => (node.wait_for ? node.wait_for.event : node.approval ? id : null);

export const nameOf = (transition, at) => transition.id || `transitions[${at}]`;

/** Nodes and edges of a definition, with sizes; `direction` is LR or TB. */
export function shapeOf(definition, direction) {
  const stacked = new Map(); // node → why it may be there many times
  const edges = [], joins = new Map();
  (definition.transitions || []).forEach((one, at) => {
    if (one.foreach) stacked.set(one.to, `for each of ${one.foreach}`);
    else if (one.spawn_count !== undefined && one.spawn_count !== null) stacked.set(one.to, `${one.spawn_count} times`);
    const id = nameOf(one, at), text = reasonOf(one);
    const label = clip(text);
    const edge = { id: `t${at}`, at, transition: id, from: one.from, to: one.to, label, title: text, labelWidth: label ? label.length * CHARACTER + 8 : 0 };
    const rule = one.synchronization;
    if (!rule) { edges.push(edge); return; }
    const join = `join ${rule.joins_transition} → ${one.to}`;
    if (!joins.has(join)) {
      joins.set(join, { id: join, kind: "join", at, rule, title: ruleOf(rule), width: 104, height: 34 });
      edges.push({ id: `j${at}`, at, isAfterJoin: true, transition: id, from: join, to: one.to, label: "", labelWidth: 0 });
    }
    edges.push({ ...edge, to: join, isArrival: true });
  });
  const nodes = Object.entries(definition.nodes).map(([id, node]) => {
    (node.on_error || []).forEach((route, at) => {
      if (definition.nodes[route.to]) edges.push({ id: `e${id}${at}`, isError: true, from: id, to: route.to, label: "on error", title: route.match ? `on error, when ${route.match}` : "on any error", labelWidth: 56 });
    });
    const sub = does(node);
    const width = Math.min(210, Math.max(stacked.has(id) ? 138 : 104, Math.max(id.length * 7.6, sub.length * 6.2) + (stacked.has(id) ? 62 : 30)));
    return { id, kind: kindOf(node), sub, stacked: stacked.get(id) || null, isFirst: id === definition.initial_node, width, height: 54 };
  });
  return { direction, nodes: [...nodes, ...joins.values()], edges };
}

function reasonOf(transition) {
  const parts = [];
  if (transition.condition) parts.push(transition.condition);
  if (transition.foreach) parts.push(`each of ${transition.foreach}`);
  else if (transition.spawn_count !== undefined && transition.spawn_count !== null) parts.push(`× ${transition.spawn_count}`);
  if (transition.max_iterations) parts.push(`at most ${transition.max_iterations} ×`);
  return parts.join(" · ");
}

function ruleOf(rule) {
  const needed = rule.wait_for === undefined || rule.wait_for === "all" ? "all branches" : rule.wait_for === "any" ? "any branch" : `${rule.wait_for.m_of_n} branches`;
  return `joins ${rule.joins_transition}: waits for ${needed}${rule.timeout_ms ? `, at most ${rule.timeout_ms / 1000} s` : ""}${rule.complete_on ? `, or for signal ${rule.complete_on.signal}` : ""}`;
}

const clip = (text) => (text.length > MOST_LABEL ? `${text.slice(0, MOST_LABEL - 1)}…` : text);

// --- a run's states on it ---------------------------------------------------------------------

// What of a node's tokens is worth knowing first.
const WEIGHT = ["failed", "timed_out", "executing", "dispatched", "waiting_for_event", "waiting_for_subworkflow", "pending", "waiting_for_siblings", "cancelled", "completed"];

export const totalOf = (tokens) => Object.values(tokens || {}).reduce((sum, one) => sum + one, 0);
export const byWeight = (tokens) => Object.entries(tokens || {}).filter(([, count]) => count).sort(([left], [right]) => WEIGHT.indexOf(left) - WEIGHT.indexOf(right));

/** The one colour of a node: what is under way, else what went wrong, else what is done. */
export function leadingState(tokens, runState) {
  const found = byWeight(tokens).map(([state]) => state);
  if (!found.length) return null;
  const going = found.find((state) => !["failed", "timed_out", "cancelled", "completed", "waiting_for_siblings"].includes(state));
  const isOver = runState && !["running", "paused"].includes(runState);
  if (going && !isOver) return going;
  // Branches that a join went on without do not make a node of ten thousand red.
  const failed = found.find((state) => state === "failed" || state === "timed_out");
  if (failed && (runState === "failed" || tokens[failed] === totalOf(tokens))) return failed;
  return found.includes("completed") ? "completed" : found.includes("waiting_for_siblings") ? "waiting_for_siblings" : found[0];
}

/** How a run's graph paints a shape: by node id, and by edge id. */
export function paintOf(shape, graph) {
  const nodes = new Map(graph.nodes.map((one) => [one.id, { tokens: one.tokens, state: leadingState(one.tokens, graph.state) }]));
  const edges = new Map();
  for (const edge of shape.edges) {
    if (edge.isError) {
      // The journal does not count these ways: one was taken when its node failed and the other was reached.
      const failed = nodes.get(edge.from)?.tokens?.failed || 0, reached = totalOf(nodes.get(edge.to)?.tokens);
      edges.set(edge.id, { count: Math.min(failed, reached), notTaken: 0 });
      continue;
    }
    if (edge.at === undefined) continue;
    const one = graph.transitions[edge.at];
    if (!one) continue;
    const count = edge.isAfterJoin ? one.join?.fired ?? 0 : one.taken;
    edges.set(edge.id, { count, notTaken: edge.isAfterJoin ? 0 : one.not_taken });
  }
  for (const node of shape.nodes) {
    if (node.kind === "join") nodes.set(node.id, { join: graph.transitions[node.at]?.join || null });
  }
  return { nodes, edges };
}
