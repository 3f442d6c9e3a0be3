// A line chart of a figure over time, with its numbers in words for screen readers.
import uPlot from "uplot";
import { html, useEffect, useRef } from "./lib.js";
import { clockTime } from "./format.js";
import { colour } from "./states.js";
import { theme } from "./theme_switch.js";

/** times: seconds; lines: [{ label, tone, values, isFilled }]; say: number → text. */
export function Chart({ title, times, lines, say = String, height = 150, least = 1 }) {
  const box = useRef(null);
  const plot = useRef(null);
  const names = lines.map((one) => `${one.label}:${one.tone}`).join("|");
  const shade = theme.value;

  useEffect(() => {
    const element = box.current;
    plot.current = new uPlot(options(lines, { say, height, least, width: element.clientWidth || 300 }), [times, ...lines.map((one) => one.values)], element);
    const watcher = new ResizeObserver(() => plot.current.setSize({ width: element.clientWidth, height }));
    watcher.observe(element);
    return () => { watcher.disconnect(); plot.current.destroy(); plot.current = null; };
  }, [names, shade, height]);

  useEffect(() => { plot.current?.setData([times, ...lines.map((one) => one.values)]); }, [times]);

  const last = lines.map((one) => `${one.label} ${say(lastOf(one.values))}`).join(", ");
  return html`<figure class="chart" aria-label=${`${title}: ${last}`}>
    <figcaption><b>${title}</b>${lines.map((one) => html`<span key=${one.label} data-tone=${one.tone}><i class="dot" aria-hidden="true"></i>${one.label} <em class="number">${say(lastOf(one.values))}</em></span>`)}</figcaption>
    <div ref=${box} class="chart-box" aria-hidden="true"></div>
  </figure>`;
}

const LEAST_SLOTS = 18; // three minutes: a coordinator that has just started shows no empty hour
const NUMBERS = ["submitted", "finished", "failed", "depth", "running", "oldest_age_ms"];

/** A track of `/api/series` as lines: from where there is anything to see. */
export function charted({ start_ms: start, slot_ms: slot }, track) {
  const size = track.submitted.length;
  const first = track.depth.findIndex((one) => one !== null);
  const from = Math.max(0, Math.min(first < 0 ? size : first, size - LEAST_SLOTS));
  // Without the slot that is still filling: a line that always falls at its end tells of trouble.
  const all = Object.fromEntries(NUMBERS.map((name) => [name, track[name].slice(from, -1)]));
  const times = all.submitted.map((_one, at) => (start + (from + at) * slot) / 1000);
  return { times, all, perSecond: (values) => values.map((one) => (one === null ? null : one / (slot / 1000))) };
}

const WIDTH = 120, HEIGHT = 18;

/** The same as a small line in a table, without axes: it shows the trend. */
export function Spark({ series, track, name, tone, label }) {
  if (!track) return html`<span class="faint">–</span>`;
  const { all } = charted(series, track);
  const values = all[name].map((one) => one ?? 0), most = Math.max(1, ...values);
  const step = WIDTH / Math.max(1, values.length - 1);
  const line = values.map((one, at) => `${(at * step).toFixed(1)} ${(HEIGHT - 1 - (one / most) * (HEIGHT - 3)).toFixed(1)}`).join("L");
  return html`<svg class="spark" data-tone=${tone} viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} width=${WIDTH} height=${HEIGHT} preserveAspectRatio="none" role="img" aria-label=${label}><title>${label}</title><path class="area" d=${`M0 ${HEIGHT}L${line}L${WIDTH} ${HEIGHT}Z`} /><path d=${`M${line}`} /></svg>`;
}

const lastOf = (values) => values.findLast((one) => one !== null && one !== undefined) ?? 0;

function options(lines, { say, height, least, width }) {
  const ink = colour("soft"), grid = colour("line-soft");
  const font = "11px system-ui, sans-serif";
  return {
    width, height,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 } },
    padding: [8, 8, 0, 0],
    scales: { y: { range: (_plot, _least, most) => [0, Math.max((most || 0) * 1.1, least)] } },
    axes: [
      { stroke: ink, font, grid: { show: false }, ticks: { show: false }, size: 22, space: 70, values: (_plot, splits) => splits.map((one) => clockTime(one * 1000).slice(0, 5)) },
      { stroke: ink, font, grid: { stroke: grid, width: 1 }, ticks: { show: false }, size: 52, space: 34, values: (_plot, splits) => splits.map(say) },
    ],
    series: [{}, ...lines.map((one) => ({
      label: one.label,
      stroke: colour(one.tone),
      width: 1.5,
      fill: one.isFilled ? `color-mix(in srgb, ${colour(one.tone)} 12%, transparent)` : undefined,
      points: { show: false },
      spanGaps: false,
    }))],
    plugins: [reader(lines, say)],
  };
}

/** What the line says under the pointer. */
function reader(lines, say) {
  let note;
  return {
    hooks: {
      init: (plot) => {
        note = document.createElement("div");
        note.className = "chart-note";
        note.hidden = true;
        plot.over.append(note);
        plot.over.addEventListener("mouseleave", () => { note.hidden = true; });
      },
      setCursor: (plot) => {
        const at = plot.cursor.idx;
        if (at === null || at === undefined) { note.hidden = true; return; }
        const values = lines.map((one, index) => `${one.label} ${say(plot.data[index + 1][at] ?? 0)}`);
        note.textContent = [clockTime(plot.data[0][at] * 1000).slice(0, 8), ...values].join("\n");
        note.hidden = false;
        note.classList.toggle("is-left", plot.cursor.left > plot.over.clientWidth / 2);
      },
    },
  };
}
