// The log of a task: what its handler has logged, attempt by attempt, followed while it runs.
//
// Lines come by long polls: one call waits at the coordinator until there are more.
import { get, withQuery } from "../api.js";
import { isAbsolute, now } from "../clock.js";
import { absolute, clockTime, plural, relative } from "../format.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib.js";
import { isPaused } from "../live.js";
import { Empty, Panel, Problem } from "../ui.js";

const TONES = { debug: "grey", info: "blue", warning: "amber", error: "red", critical: "red" };
const LEVELS = Object.keys(TONES);
const MOST_SHOWN = 2000; // lines, the newest; a page with more would be slow
const PAGE = 1000;
const WAIT_MS = 20_000;
const RETRY_MS = 2000;
const NEAR_END = 40; // pixels: who is that near to the end of the log stays there
const ended = (state) => ["succeeded", "failed", "cancelled"].includes(state);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const NOTHING = { lines: [], attempts: [], left: 0, problem: null, isLoading: true };

export function TaskLog({ path, state }) {
  const [level, setLevel] = useState("debug");
  const [attempt, setAttempt] = useState("");
  const log = useLog(path, { level, attempt, isOver: ended(state) });
  const list = useRef(null);
  const isAtEnd = useRef(true);
  useLayoutEffect(() => {
    if (list.current && isAtEnd.current) list.current.scrollTop = list.current.scrollHeight;
  }, [log.lines]);
  const numbers = [...new Set(log.attempts.map((one) => one.attempt))];
  const isFiltered = level !== "debug" || attempt !== "";
  if (!log.attempts.length && ended(state) && !log.problem) return null;
  const tools = html`${!ended(state) && html`<span class="badge" data-tone="green"><i aria-hidden="true"></i>following</span>`}
    ${numbers.length > 1 && html`<select aria-label="attempt" value=${attempt} onChange=${(event) => setAttempt(event.target.value)}>
      <option value="">all attempts</option>${numbers.map((one) => html`<option key=${one} value=${one}>attempt ${one}</option>`)}</select>`}
    <select aria-label="level" value=${level} onChange=${(event) => setLevel(event.target.value)}>
      ${LEVELS.map((one) => html`<option key=${one} value=${one}>${one === "debug" ? "every level" : one === "critical" ? "critical only" : `${one} and above`}</option>`)}</select>`;
  const watch = (event) => { const { scrollHeight, scrollTop, clientHeight } = event.target; isAtEnd.current = scrollHeight - scrollTop - clientHeight < NEAR_END; };
  return html`<${Panel} title="Log" kind="task-log" tools=${tools}>
    ${log.problem && html`<${Problem} of=${log} />`}
    ${log.left > 0 && html`<p class="gap">${plural(log.left, "earlier line")} not shown here; <code>rota tasks logs</code> has them</p>`}
    ${log.lines.length
      ? html`<div class="lines" role="log" aria-label="log lines" tabindex="0" ref=${list} onScroll=${watch}>${log.lines.map((line, at) => html`
          ${line.fence !== log.lines[at - 1]?.fence && html`<${Heading} key=${`a${line.fence}`} line=${line} attempts=${log.attempts} isAlone=${log.attempts.length === 1} />`}
          <${Line} key=${line.number} line=${line} />`)}<${Dropped} attempts=${log.attempts} attempt=${attempt} /></div>`
      : html`<${Empty}>${log.isLoading ? "…" : isFiltered ? "No such line." : ended(state) ? "No line was kept." : "Nothing logged yet."}<//><${Dropped} attempts=${log.attempts} attempt=${attempt} />`}<//>`;
}

/** The lines so far, and those that come. */
function useLog(path, { level, attempt, isOver }) {
  const [log, setLog] = useState(NOTHING);
  const key = withQuery(path, { level, attempt });
  const known = useRef({ key: null, after: 0, ...NOTHING });
  useEffect(() => {
    const own = new AbortController();
    if (known.current.key !== key) {
      known.current = { ...NOTHING, attempts: known.current.attempts, key, after: 0 };
      setLog(known.current);
    }
    follow(path, { level, attempt }, known, setLog, own.signal);
    return () => own.abort();
  }, [key, isOver]);
  return log;
}

async function follow(path, wanted, known, setLog, signal) {
  let isFirst = true;
  while (!signal.aborted) {
    if (!isFirst && isPaused()) { await pause(500); continue; }
    try {
      const query = { ...wanted, after: known.current.after, limit: PAGE, wait_ms: isFirst ? undefined : WAIT_MS };
      const page = await get(withQuery(`${path}/logs`, query), { signal });
      if (signal.aborted) return;
      isFirst = false;
      const before = known.current;
      const all = page.items.length ? [...before.lines, ...page.items] : before.lines;
      const over = Math.max(0, all.length - MOST_SHOWN);
      known.current = { ...before, lines: over ? all.slice(over) : all, left: before.left + over, attempts: page.attempts, after: page.next_after, problem: null, isLoading: false };
      setLog(known.current);
      if (ended(page.state) && !page.has_more) return;
    } catch (problem) {
      if (signal.aborted) return;
      known.current = { ...known.current, problem, isLoading: false };
      setLog(known.current);
      await pause(RETRY_MS);
    }
  }
}

function Heading({ line, attempts, isAlone }) {
  if (isAlone) return null;
  const log = attempts.find((one) => one.fence === line.fence);
  return html`<h3>attempt ${line.attempt}${log?.dropped ? html` <span class="soft">${plural(log.dropped, "line")} dropped</span>` : ""}</h3>`;
}

/** What is missing of attempts that have no heading of their own to say it. */
function Dropped({ attempts, attempt }) {
  const missing = attempts.filter((one) => one.dropped && (attempts.length === 1 || !one.lines) && (attempt === "" || String(one.attempt) === attempt));
  return missing.map((one) => html`<p class="gap" key=${one.fence}>${plural(one.dropped, "line")} of attempt ${one.attempt} dropped: over a limit, or the coordinator was away</p>`);
}

function Line({ line }) {
  const fields = line.fields && Object.keys(line.fields).length ? Object.entries(line.fields) : null;
  return html`<div class="line" data-tone=${TONES[line.level]} data-level=${line.level}>
    <${Stamp} at=${line.at_ms} /><b>${line.level}</b>
    <pre>${line.message}${fields && html`<span class="fields">${fields.map(([name, value]) => html` <i>${name}=</i>${typeof value === "string" ? value : JSON.stringify(value)}`)}</span>`}${line.logger && line.logger !== "rota.task" && html` <span class="faint">${line.logger}</span>`}</pre></div>`;
}

/** When a line was logged, to the millisecond where times are by the clock. */
function Stamp({ at }) {
  const [byClock, fromNow] = [absolute(at), relative(at, now.value)];
  return html`<time datetime=${new Date(at).toISOString()} title=${isAbsolute.value ? fromNow : byClock}>${isAbsolute.value ? clockTime(at) : fromNow}</time>`;
}
