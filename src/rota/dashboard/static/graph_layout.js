// The positions of a graph's nodes, computed by a thread and cached: a graph that is only
// repainted keeps its layout.
import { useEffect, useState } from "./lib.js";

const KEPT = 30;
const layouts = new Map(); // shape as text → layout
const waiting = new Map(); // number → [key, callbacks]
let thread = null;
let number = 0;

export function useLayout(shape) {
  const key = shape && JSON.stringify([shape.direction, shape.nodes.map((one) => [one.id, one.width, one.height]), shape.edges.map((one) => [one.id, one.from, one.to, one.labelWidth]), shape.groups?.length && [shape.groups.map((one) => one.id), shape.nodes.map((one) => one.parent)]]);
  const [, repaint] = useState(0);
  useEffect(() => {
    if (!key || layouts.has(key)) return undefined;
    let isWanted = true;
    ask(key, shape, () => { if (isWanted) repaint((count) => count + 1); });
    return () => { isWanted = false; };
  }, [key]);
  return key ? layouts.get(key) || null : null;
}

function ask(key, shape, done) {
  for (const [, [asked, callbacks]] of waiting) {
    if (asked === key) { callbacks.push(done); return; }
  }
  if (!thread) {
    thread = new Worker(new URL("layout_worker_thread.js", import.meta.url), { type: "module" });
    thread.onmessage = ({ data }) => answer(data);
    thread.onerror = () => { for (const one of [...waiting.keys()]) answer({ number: one, problem: "the layout thread does not start" }); };
  }
  number += 1;
  waiting.set(number, [key, [done]]);
  const nodes = shape.nodes.map(({ id, width, height, parent }) => ({ id, width, height, parent }));
  const edges = shape.edges.map(({ id, from, to, labelWidth }) => ({ id, from, to, labelWidth }));
  thread.postMessage({ number, shape: { direction: shape.direction, nodes, edges, groups: shape.groups || [], ranksep: shape.ranksep } });
}

function answer({ number: answered, layout, problem }) {
  const [key, callbacks] = waiting.get(answered) || [null, []];
  waiting.delete(answered);
  layouts.set(key, layout ? byId(layout) : { problem });
  for (const old of layouts.keys()) {
    if (layouts.size <= KEPT) break;
    layouts.delete(old);
  }
  for (const callback of callbacks) callback();
}

const byId = (layout) => ({
  ...layout,
  nodes: new Map(layout.nodes.map((one) => [one.id, one])),
  edges: new Map(layout.edges.map((one) => [one.id, one])),
});
