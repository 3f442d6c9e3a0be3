// The graph of a workflow, and of a run in it: SVG over the layout of dagre.
import { html, useEffect, useMemo, useRef, useState } from "./lib.js";
import { short, whole } from "./format.js";
import { useLayout } from "./graph_layout.js";
import { byWeight, paintOf, shapeOf, totalOf } from "./graph_shape.js";
import { tone } from "./states.js";

const NARROW = 640;
const LEAST_FIT = 0.62; // smaller than this nothing can be read: scroll instead
const LEAST_TALL = 0.8; // a graph from top to bottom fits the height of its box as far as this
const MOST_HEIGHT = 700;

/**
 * definition: what to draw; graph: a run's figures, or null; chosen and onChoose: a node. `shaped` and
 * `painted` make the shape and its colours; `flow` is the direction where there is room. `isFollowing`
 * scrolls to what is under way.
 */
export function Graph({ definition, graph, chosen, onChoose, label, shaped = shapeOf, painted = paintOf, flow = "LR", isFollowing = false }) {
  const box = useRef(null);
  const [width, setWidth] = useState(0);
  const [zoom, setZoom] = useState(0); // 0: as it fits
  useEffect(() => {
    const element = box.current;
    const watcher = new ResizeObserver(() => setWidth(element.clientWidth));
    watcher.observe(element);
    setWidth(element.clientWidth);
    return () => watcher.disconnect();
  }, []);
  const direction = width && width < NARROW ? "TB" : flow;
  const shape = useMemo(() => (width ? shaped(definition, direction) : null), [definition, direction, Boolean(width)]);
  const layout = useLayout(shape);
  const paint = useMemo(() => (shape && graph ? painted(shape, graph) : null), [shape, graph, painted]);
  const wide = layout?.width ? Math.min(1.15, Math.max(LEAST_FIT, (width - 2) / layout.width)) : 1;
  const fit = flow === "TB" && layout?.height * wide > MOST_HEIGHT ? Math.min(wide, Math.max(LEAST_TALL, MOST_HEIGHT / layout.height)) : wide;
  const scale = zoom || fit;
  const going = isFollowing && paint ? [...paint.nodes].find(([, one]) => GOING.has(one.state))?.[0] : null;
  const target = going && layout?.nodes?.get(going);
  useEffect(() => { if (target) box.current.scrollTop = target.y * scale - box.current.clientHeight / 2; }, [going, Boolean(target)]);
  const step = (by) => setZoom(Math.min(3, Math.max(0.2, scale * by)));
  return html`<div class="graph">
    <div class="graph-box" ref=${box} tabindex="0" role="group" aria-label=${label}>
      ${layout?.problem ? html`<p class="problem">${layout.problem}</p>` : layout && shape
        ? html`<${Picture} shape=${shape} layout=${layout} paint=${paint} scale=${scale} chosen=${chosen} onChoose=${onChoose} />`
        : html`<p class="empty" aria-busy="true">…</p>`}
    </div>
    <div class="graph-zoom"><button type="button" class="button small" aria-label="smaller" onClick=${() => step(0.8)}>−</button><button type="button" class="button small" aria-label="fit to the panel" onClick=${() => setZoom(0)}>fit</button><button type="button" class="button small" aria-label="larger" onClick=${() => step(1.25)}>+</button></div>
  </div>`;
}

const GOING = new Set(["executing", "dispatched", "waiting_for_event", "waiting_for_subworkflow"]);

function Picture({ shape, layout, paint, scale, chosen, onChoose }) {
  return html`<svg class="graph-svg" width=${layout.width * scale} height=${layout.height * scale} viewBox=${`0 0 ${layout.width} ${layout.height}`}>
    <defs>${["line", "taken", "error"].map((kind) => html`<marker key=${kind} id=${`arrow-${kind}`} class=${`arrow-${kind}`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0 0.6 8 4 0 7.4z" /></marker>`)}</defs>
    ${(layout.groups || []).map((one) => html`<g key=${one.id} class="scope" transform=${`translate(${one.x - one.width / 2} ${one.y - one.height / 2})`}><rect y="-8" width=${one.width} height=${one.height + 8} rx="10" /><text x="8" y="4">${clipped(one.label, one.width - 16, 6.2)}</text></g>`)}
    ${shape.edges.map((edge) => html`<${Edge} key=${edge.id} edge=${edge} place=${layout.edges.get(edge.id)} paint=${paint?.edges.get(edge.id)} isPainted=${Boolean(paint)} />`)}
    ${shape.nodes.map((node) => node.kind === "join"
      ? html`<${Join} key=${node.id} node=${node} place=${layout.nodes.get(node.id)} join=${paint?.nodes.get(node.id)?.join} isPainted=${Boolean(paint)} />`
      : html`<${Node} key=${node.id} node=${node} place=${layout.nodes.get(node.id)} paint=${paint?.nodes.get(node.id)} isPainted=${Boolean(paint)} isChosen=${chosen === node.id} isDown=${shape.direction === "TB"} onChoose=${onChoose} />`)}
  </svg>`;
}

function Edge({ edge, place, paint, isPainted }) {
  if (!place) return null;
  const isTaken = paint?.count > 0;
  const kind = edge.isError ? "error" : isTaken ? "taken" : "line";
  const said = !isPainted ? "" : isTaken ? ` — taken ${whole(paint.count)} ×` : paint?.notTaken ? ` — considered ${whole(paint.notTaken)} ×, not taken` : " — not reached";
  return html`<g class=${`edge is-${kind} ${isPainted && !isTaken ? "is-untaken" : ""}`}>
    <path d=${curve(place.points)} marker-end=${`url(#arrow-${kind})`}><title>${`${edge.title || edge.transition}${said}`}</title></path>
    ${edge.label && html`<g transform=${`translate(${place.x} ${place.y})`}><rect x=${-edge.labelWidth / 2} y="-9" width=${edge.labelWidth} height="18" rx="4" /><text text-anchor="middle" y="4">${edge.label}<title>${`${edge.title}${said}`}</title></text></g>`}
  </g>`;
}

/** A soft line through dagre's points: straight to the middle of each stretch, bent at the points. */
function curve(points) {
  const at = ({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  let path = `M${at(points[0])}`;
  for (let index = 1; index < points.length - 1; index += 1) {
    const next = points[index + 1];
    const end = index === points.length - 2 ? next : { x: (points[index].x + next.x) / 2, y: (points[index].y + next.y) / 2 };
    path += `Q${at(points[index])} ${at(end)}`;
  }
  return points.length === 2 ? `${path}L${at(points[1])}` : path;
}

function Node({ node, place, paint, isPainted, isChosen, isDown, onChoose }) {
  if (!place) return null;
  const { width, height } = place, x = place.x - width / 2, y = place.y - height / 2;
  const total = totalOf(paint?.tokens);
  const states = byWeight(paint?.tokens);
  const choose = () => onChoose?.(isChosen ? "" : node.id);
  const press = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); choose(); } };
  const words = [node.id, node.sub, node.stacked, ...states.map(([state, count]) => `${whole(count)} ${state.replaceAll("_", " ")}`), isPainted && !total && "not reached"].filter(Boolean).join(", ");
  const isMany = node.stacked || total > 1;
  return html`<g class=${`node is-${node.kind} ${isPainted && !total ? "is-unreached" : ""} ${isChosen ? "is-chosen" : ""} ${paint?.state === "executing" ? "is-going" : ""}`}
      data-tone=${paint?.state ? tone(paint.state) : undefined} data-node=${node.id} transform=${`translate(${x} ${y})`}
      tabindex=${onChoose ? 0 : undefined} role=${onChoose ? "button" : "img"} aria-pressed=${onChoose ? isChosen : undefined} aria-label=${words} onClick=${choose} onKeyDown=${press}>
    <title>${words}</title>
    ${node.stacked && html`<rect class="stack" x="7" y="-7" width=${width} height=${height} rx="8" /><rect class="stack" x="3.5" y="-3.5" width=${width} height=${height} rx="8" />`}
    <rect class="card" width=${width} height=${height} rx="8" />
    <rect class="mark" width="4" height=${height - 16} x="0" y="8" rx="2" />
    <text class="name" x="14" y="21">${clipped(node.id, width - (isMany && total ? 32 + short(total).length * 7 : 22), 7.3)}</text>
    <text class="sub" x="14" y="37">${clipped(node.sub, width - 22, 6)}</text>
    ${isMany && total > 0 && html`<text class="many" text-anchor="end" x=${width - 10} y="21">× ${short(total)}</text>`}
    ${node.isFirst && html`<circle class="first" cx=${isDown ? width / 2 : -1} cy=${isDown ? -1 : height / 2} r="4.5" />`}
    ${total > 0 && html`<${Shares} states=${states} total=${total} width=${width - 24} y=${height - 10} />`}
  </g>`;
}

const clipped = (text, width, character) => (text.length * character > width ? `${text.slice(0, Math.max(3, Math.floor(width / character) - 1))}…` : text);

function Shares({ states, total, width, y }) {
  let x = 14;
  return states.map(([state, count]) => {
    const share = Math.max(2, (count / total) * width);
    const part = html`<rect key=${state} class="share" data-tone=${tone(state)} x=${x} y=${y} width=${Math.max(0.5, Math.min(share, 14 + width - x))} height="4" rx="1.5" />`;
    x += share;
    return part;
  });
}

function Join({ node, place, join, isPainted }) {
  if (!place) return null;
  const { width, height } = place;
  const lost = join ? [join.cancelled && `${short(join.cancelled)} cancelled`, join.failed && `${short(join.failed)} failed`].filter(Boolean).join(", ") : "";
  const state = !join?.scopes ? null : join.fired >= join.scopes ? "completed" : "waiting_for_siblings";
  const words = join ? `${node.title}; ${whole(join.arrived)} of ${whole(join.needed)} arrived${lost && `, ${lost}`}; fired ${join.fired} ×` : node.title;
  return html`<g class=${`join ${isPainted && !state ? "is-unreached" : ""}`} data-tone=${state ? tone(state) : undefined} transform=${`translate(${place.x - width / 2} ${place.y - height / 2})`} role="img" aria-label=${words}>
    <title>${words}</title>
    <rect width=${width} height=${height} rx=${height / 2} />
    <text text-anchor="middle" x=${width / 2} y=${lost ? 15 : 21}>${join?.scopes ? `${short(join.arrived)} / ${short(join.needed)}` : ruleWord(node.rule)}</text>
    ${lost && html`<text class="lost" text-anchor="middle" x=${width / 2} y="27">${join.cancelled ? `${short(join.cancelled)} cancelled` : lost}</text>`}
  </g>`;
}

const ruleWord = (rule) => (!rule.wait_for || rule.wait_for === "all" ? "all" : rule.wait_for === "any" ? "any" : typeof rule.wait_for.m_of_n === "string" ? "m of n" : `${rule.wait_for.m_of_n} of n`);
