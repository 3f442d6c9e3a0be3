// A slider over the journal of a run. Each step shows the graph as it was after that entry.
import { get } from "../api.js";
import { absolute, clockTime, plural } from "../format.js";
import { html, useEffect, useRef, useState } from "../lib.js";

const PLAY_MS = 350;
const MOST_PLAYED = 120; // steps of one playing: a long journal goes by in leaps

/** The graph as it was after entry `at`; null while nothing is chosen. The last wish wins. */
export function usePast(runId, at) {
  const [past, setPast] = useState(null);
  const wish = useRef(null);
  useEffect(() => {
    if (!wish.current || wish.current.runId !== runId) wish.current = { runId, at: 0, isBusy: false };
    const own = wish.current;
    own.at = at;
    own.show = setPast;
    if (at) follow(own);
    else setPast(null);
    return () => { own.at = 0; };
  }, [runId, at]);
  return at ? past : null;
}

/** Fetch what is wished for, one after the other: of a thumb that is dragged, as much as there is time for. */
async function follow(wish) {
  if (wish.isBusy) return;
  wish.isBusy = true;
  for (let done = 0; wish.at && wish.at !== done;) {
    const at = wish.at;
    done = at;
    const path = `/api/runs/${wish.runId}`;
    try {
      // The words beside it may come later: an entry that fans out is long.
      const words = get(`${path}/journal?after=${at - 1}&limit=1&decisions=20`);
      words.catch(() => {});
      const graph = await get(`${path}/graph?at=${at}`);
      if (!wish.at) break;
      wish.show((old) => ({ at, graph, entry: old?.entry }));
      const { items: [entry] } = await words;
      if (wish.at === at) wish.show({ at, graph, entry });
    } catch { /* the page says that nobody answers */ }
  }
  wish.isBusy = false;
}

export function Slider({ last, at, past, onStep }) {
  const [isPlaying, setPlaying] = useState(false);
  const shown = at || last;
  useEffect(() => {
    if (!isPlaying) return undefined;
    if (shown >= last) { setPlaying(false); return undefined; }
    const leap = Math.max(1, Math.round(last / MOST_PLAYED));
    const step = () => (document.hidden ? setPlaying(false) : onStep(Math.min(last, shown + leap))); // nobody looks: stop
    const timer = setTimeout(step, PLAY_MS);
    return () => clearTimeout(timer);
  }, [isPlaying, shown, last]);
  const play = () => { if (shown >= last) onStep(1); setPlaying(!isPlaying); };
  const go = (number) => { setPlaying(false); onStep(number >= last ? 0 : Math.max(1, number)); };
  const words = past?.entry && past.entry.number === past.at ? past.entry.text : "";
  return html`<div class="slider">
    <div class="steps">
      <button type="button" class="button quiet small" aria-label="one step back" disabled=${shown <= 1} onClick=${() => go(shown - 1)}>◂</button>
      <button type="button" class="button quiet small" aria-label=${isPlaying ? "stop" : "play from here"} onClick=${play}>${isPlaying ? "❚❚" : "▶"}</button>
      <button type="button" class="button quiet small" aria-label="one step on" disabled=${shown >= last} onClick=${() => go(shown + 1)}>▸</button>
    </div>
    <input type="range" min="1" max=${last} step="1" value=${shown} aria-label="moment in the run's journal" aria-valuetext=${at ? `entry ${at}: ${words}` : "now"} onInput=${(event) => go(Number(event.target.value))} />
    <span class="number soft">${at ? html`<button type="button" class="button small" onClick=${() => go(last)}>back to now</button>` : plural(last, "entry", "entries")}</span>
    ${at ? html`<p class="said" aria-live="polite"><span class="past">as it was</span> after #${at}${past?.entry && html`, <span title=${absolute(past.entry.at_ms)}>${clockTime(past.entry.at_ms)}</span>: <b>${words}</b>`}</p>` : null}
  </div>`;
}
