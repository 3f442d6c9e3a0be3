// The shards of a service as cells in their owners' colours, on a canvas: there may be 100,000.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib.js";
import { plural, whole } from "../format.js";
import { colour } from "../states.js";
import { theme } from "../theme_switch.js";

const SIZES = [[40, 34], [120, 22], [300, 16], [2_500, 10], [20_000, 6], [60_000, 3], [Infinity, 2]]; // shards → pixels of a cell
const NUMBERED = 22; // pixels of a cell that has room for its number
const UNOWNED = -1;

/** The owner, the epoch and the target of each shard; members are given by their place in the list. */
export function ownersOf(service) {
  const owner = new Int32Array(service.shard_count).fill(UNOWNED), target = owner.slice(), epoch = new Float64Array(service.shard_count);
  service.members.forEach((member, index) => {
    member.shards.forEach((shard, at) => { if (shard < owner.length) { owner[shard] = index; epoch[shard] = member.epochs[at]; } });
    for (const shard of member.target) if (shard < target.length) target[shard] = index;
  });
  return { owner, target, epoch };
}

/** One colour a member, far from its neighbours; the same in every answer with as many members. */
export const hue = (index, isDark) => `hsl(${(index * 137.5 + 205) % 360} ${isDark ? 50 : 55}% ${isDark ? 58 : 52}%)`;

export function Strip({ service, chosen }) {
  const canvas = useRef(null), box = useRef(null);
  const [width, setWidth] = useState(0);
  const [shows, setShows] = useState("owner");
  const [pointed, setPointed] = useState(null);
  const field = useMemo(() => ownersOf(service), [service]);
  const isDark = theme.value === "dark";
  const count = service.shard_count;
  const size = SIZES.find(([most]) => count <= most)[1];
  const columns = Math.max(1, Math.floor(width / size)), rows = Math.ceil(count / columns);
  useLayoutEffect(() => {
    const element = box.current;
    const watcher = new ResizeObserver(() => setWidth(element.clientWidth));
    watcher.observe(element);
    setWidth(element.clientWidth);
    return () => watcher.disconnect();
  }, []);
  useEffect(() => { if (width) draw(canvas.current, { field, shows, chosen, size, columns, rows, count, isDark }); }, [field, shows, chosen, width, isDark]);
  const point = (event) => {
    const at = Math.floor(event.offsetY / size) * columns + Math.floor(event.offsetX / size);
    setPointed(event.offsetX < columns * size && at >= 0 && at < count ? at : null);
  };
  const words = `${plural(count, "shard")}, ${whole(service.unowned)} unowned, ${whole(service.moving)} moving`;
  return html`<div class="strip-box">
    <div class="strip-tools"><div role="group" aria-label="what to show">${["owner", "target"].map((one) => html`<button key=${one} type="button" class=${`button small ${shows === one ? "" : "quiet"}`} aria-pressed=${shows === one} onClick=${() => setShows(one)}>${one === "owner" ? "now" : "target"}</button>`)}</div>
      <label class="soft">shard <input type="number" min="0" max=${count - 1} class="short" placeholder="#" aria-label="look up a shard" onInput=${(event) => setPointed(event.target.value === "" ? null : Math.min(count - 1, Math.max(0, Number(event.target.value))))} /></label>
      <span class="said" role="status">${pointed === null ? html`<span class="faint">${words}</span>` : told(pointed, field, service)}</span></div>
    <div ref=${box} class="strip-field"><canvas ref=${canvas} role="img" aria-label=${words} onMouseMove=${point} onMouseLeave=${() => setPointed(null)}></canvas></div>
  </div>`;
}

function told(shard, { owner, target, epoch }, service) {
  const name = (index) => (index === UNOWNED ? "no member" : service.members[index].worker_id);
  return `shard ${shard}: ${owner[shard] === UNOWNED ? "unowned" : `${name(owner[shard])} at epoch ${epoch[shard]}`}${owner[shard] === target[shard] ? "" : `, moves to ${name(target[shard])}`}`;
}

function draw(canvas, { field, shows, chosen, size, columns, rows, count, isDark }) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = columns * size * ratio;
  canvas.height = rows * size * ratio;
  canvas.style.width = `${columns * size}px`;
  canvas.style.height = `${rows * size}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const gap = size >= 6 ? 1 : 0;
  const shown = field[shows], red = colour("red"), amber = colour("amber"), paper = colour("card");
  const inks = new Map();
  const ink = (index) => {
    if (!inks.has(index)) inks.set(index, index === UNOWNED ? red : hue(index, isDark));
    return inks.get(index);
  };
  for (let from = 0; from < count;) {
    // One stroke for neighbours that look the same: most shards lie in long stretches.
    const row = Math.floor(from / columns), end = Math.min(count, (row + 1) * columns);
    const isMoving = field.owner[from] !== field.target[from];
    let to = from + 1;
    if (!gap) while (to < end && shown[to] === shown[from] && (field.owner[to] !== field.target[to]) === isMoving) to += 1;
    const x = (from - row * columns) * size, y = row * size, width = (to - from) * size - gap, height = size - gap;
    pen.globalAlpha = chosen !== null && chosen !== undefined && shown[from] !== chosen ? 0.18 : 1;
    pen.fillStyle = isMoving && size < 6 ? amber : ink(shown[from]);
    pen.fillRect(x, y, width, height);
    if (shown[from] === UNOWNED && size >= 6) { pen.fillStyle = paper; pen.fillRect(x + 1.5, y + 1.5, width - 3, height - 3); }
    if (isMoving && size >= 6) {
      pen.fillStyle = shows === "owner" && field.target[from] !== UNOWNED ? ink(field.target[from]) : ink(field.owner[from]);
      pen.beginPath(); pen.moveTo(x + width, y); pen.lineTo(x + width, y + height); pen.lineTo(x, y + height); pen.fill();
      pen.strokeStyle = amber; pen.lineWidth = 1.5; pen.strokeRect(x + 0.75, y + 0.75, width - 1.5, height - 1.5);
    }
    from = to;
  }
  pen.globalAlpha = 1;
  if (size < NUMBERED) return;
  pen.font = "600 12px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (let at = 0; at < count; at += 1) {
    pen.fillStyle = shown[at] === UNOWNED ? red : paper;
    pen.fillText(String(at), (at % columns) * size + (size - gap) / 2, Math.floor(at / columns) * size + (size - gap) / 2);
  }
}
