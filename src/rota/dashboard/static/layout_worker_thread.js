// Computes a layout with dagre in a thread of its own, because a graph of hundreds of nodes takes
// long enough to freeze the page.
import dagre from "./vendor/dagre.js";

self.onmessage = ({ data: { number, shape } }) => {
  try {
    self.postMessage({ number, layout: layOut(shape) });
  } catch (problem) {
    self.postMessage({ number, problem: String(problem) });
  }
};

function layOut({ direction, nodes, edges, groups, ranksep }) {
  const graph = new dagre.graphlib.Graph({ multigraph: true, compound: groups.length > 0 });
  graph.setGraph({ rankdir: direction, nodesep: 26, edgesep: 16, ranksep: ranksep || (direction === "LR" ? 46 : 34), marginx: 12, marginy: 12 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const { id, width, height } of nodes) graph.setNode(id, { width, height });
  for (const { id } of groups) graph.setNode(boxOf(id), {});
  for (const { id, parent } of groups) if (parent) graph.setParent(boxOf(id), boxOf(parent));
  for (const { id, parent } of nodes) if (parent) graph.setParent(id, boxOf(parent));
  for (const { id, from, to, labelWidth } of edges) {
    graph.setEdge(from, to, { width: labelWidth || 0, height: labelWidth ? 16 : 0, labelpos: "c" }, id);
  }
  dagre.layout(graph);
  const { width, height } = graph.graph();
  return {
    width, height,
    nodes: nodes.map(({ id }) => pick(id, graph.node(id))),
    groups: groups.map(({ id, label }) => ({ ...pick(id, graph.node(boxOf(id))), label })),
    edges: edges.map(({ id, from, to }) => {
      const { points, x, y } = graph.edge(from, to, id);
      return { id, points, x, y };
    }),
  };
}

const boxOf = (group) => `\u0000${group}`; // no node is called that

const pick = (id, { x, y, width, height }) => ({ id, x, y, width, height });
