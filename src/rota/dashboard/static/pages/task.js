// One task: its timeline, its data, and the reason why it waits.
import { post } from "../api.js";
import { act, confirm } from "../dialog.js";
import { duration, shellWord, whole } from "../format.js";
import { Json } from "../json.js";
import { html } from "../lib.js";
import { useResource } from "../resource.js";
import { address } from "../root.js";
import { link, segment } from "../router.js";
import { may } from "../session.js";
import { tone } from "../states.js";
import { Badge, Bar, Button, Copy, Duration, Facts, Header, Panel, Problem, Time } from "../ui.js";
import { pace } from "./rates.js";
import { TaskLog } from "./task_log.js";

const WHY_TONES = { ready: "amber", queued_behind: "amber", workers_busy: "amber", limit_full: "amber", rate_closed: "amber", retry_later: "violet", not_due: "violet", breaker_open: "orange" };
const isOver = (task) => ["succeeded", "failed", "cancelled"].includes(task.state);

export default function Task({ params }) {
  const path = `/api/tasks/${segment(params.id)}`;
  const found = useResource(path, { on: ["task-"], every: 2000 });
  const story = useResource(`${path}/timeline`, { on: ["task-", "worker-", "queue-"], every: 5000 });
  const task = found.data;
  if (!task) return html`<${Header} title="Task" sub=${params.id} /><${Problem} of=${found} />`;
  const reload = () => { found.reload(); story.reload(); };
  return html`<${Header} title=${task.name} sub=${html`<span class="mono">${task.id}</span> <${Copy} text=${task.id} label="copy the id">copy<//>`}><${Actions} task=${task} reload=${reload} /><//>
    ${story.data && html`<${Why} task=${task} story=${story.data} />`}
    <div class="grid">
      <div class="span-4"><${About} task=${task} story=${story.data} /></div>
      <div class="span-8">
        ${task.error && html`<${Failure} error=${task.error} isOver=${isOver(task)} />`}
        ${isOver(task) && task.state === "succeeded" && html`<${Panel} title="Result"><${Json} value=${task.result} label="result" /><//>`}
        ${task.progress !== null && typeof task.progress !== "number" && html`<${Panel} title="Progress"><${Json} value=${task.progress} label="progress" /><//>`}
        ${task.partial !== null && html`<${Panel} title="Partial result"><${Json} value=${task.partial} label="partial result" /><//>`}
        <${TaskLog} key=${path} path=${path} state=${task.state} />
        <${Panel} title="Payload"><${Json} value=${task.payload} label="payload" /><//>
        ${story.data && html`<${Timeline} task=${task} story=${story.data} />`}
      </div>
    </div>`;
}

function Why({ task, story }) {
  const { why } = story;
  const shade = why.is_stuck ? "red" : WHY_TONES[why.code] || tone(task.state);
  return html`<div class="why" data-tone=${shade}><${Badge} state=${task.state} />
    <div><b>${why.text}</b>${why.opens_at_ms && html` · <${Time} at=${why.opens_at_ms} />`}${why.limit_key && html` · <a href=${link("/limits", { prefix: why.limit_key })}>its limit</a>`}
      ${task.state === "scheduled" && html` · <${Time} at=${task.run_at_ms} />`}
      ${task.state === "running" && typeof task.progress === "number" && html` <${Bar} share=${task.progress} /> ${Math.round(task.progress * 100)} %`}
      ${task.state === "running" && story.deadline_ms && html` · its time is over <${Time} at=${story.deadline_ms} />`}</div></div>`;
}

const About = ({ task, story }) => html`<${Panel} title="About"><div class="body"><${Facts} items=${[
  ["state", html`<${Badge} state=${task.state} />`],
  ["queue", html`<a href=${link("/tasks", { queue: task.queue })}>${task.queue}</a>`],
  ["attempt", `${task.attempt} of ${task.max_attempts}`],
  ["acknowledged", task.acknowledged && html`by ${task.acknowledged.by}, <${Time} at=${task.acknowledged.at_ms} />${task.acknowledged.reason ? `: ${task.acknowledged.reason}` : ""}`],
  ["worker", task.worker_id && html`<a href=${`/workers/${segment(task.worker_id)}`}>${task.worker_id}</a>`],
  ["position", task.position && `${task.position} of its kind`],
  ["requires", task.requires.length ? html`<span class="chips">${task.requires.map((one) => html`<span class="chip" key=${one}>${one}</span>`)}</span>` : null],
  ["priority", task.priority || null],
  ["created", html`<${Time} at=${task.created_at_ms} />`],
  ["due", task.run_at_ms && html`<${Time} at=${task.run_at_ms} />`],
  ["started", task.started_at_ms && html`<${Time} at=${task.started_at_ms} />`],
  ["finished", task.finished_at_ms && html`<${Time} at=${task.finished_at_ms} />`],
  ["waited", task.started_at_ms && duration(task.started_at_ms - task.created_at_ms)],
  ["ran", task.started_at_ms && html`<${Duration} from=${task.started_at_ms} to=${task.finished_at_ms} />`],
  ["time limit", task.timeout_ms && duration(task.timeout_ms)],
  ["start within", task.start_within_ms && `${duration(task.start_within_ms)}, else ${task.on_expiry}`],
  ["back-off", task.backoff && `${task.backoff.kind}, ${duration(task.backoff.initial_ms)} to ${duration(task.backoff.max_ms)}`],
  ["unique", task.unique && html`<code>${JSON.stringify(task.unique)}</code>`],
  ["debounce", task.debounce && html`<code>${JSON.stringify(task.debounce)}</code>`],
  ["concurrency", limits(task.concurrency, (one) => `${whole(one.limit)} at once${one.hold === "task" ? ", kept between attempts" : ""}`)],
  ["rate", limits(task.rate, (one) => `${pace(one)}${one.cost > 1 ? `, costs ${whole(one.cost)}` : ""}`)],
  ["fair key", task.fair_key && html`<code>${task.fair_key}</code>`],
  ["key", task.key && html`<code>${task.key}</code>`],
  ["labels", labels(task)],
  ["headers", task.headers && html`<code>${JSON.stringify(task.headers)}</code>`],
  ["run", task.run_id && html`<a class="mono" href=${`/runs/${segment(task.run_id)}`}>${task.run_id}</a>`],
  ["fence", story?.fence],
]} /></div><//>`;

/** The limits that a task names, which are one, several or none, each with what it declares. */
function limits(given, declared) {
  const items = given ? [given].flat() : [];
  return items.length ? items.map((one) => html`<div key=${one.key}><a href=${link("/limits", { prefix: one.key })}>${one.key}</a> <span class="soft">${declared(one)}</span></div>`) : null;
}

function labels(task) {
  const texts = Array.isArray(task.labels) ? task.labels : Object.entries(task.labels || {}).map(([key, value]) => `${key}=${value}`);
  return texts.length ? html`<span class="chips">${texts.map((one) => html`<a class="chip" key=${one} href=${link("/tasks", { label: one })}>${one}</a>`)}</span>` : null;
}

function Failure({ error, isOver: isFinal }) {
  return html`<${Panel} title=${isFinal ? "Error" : "Last error"}><div class="body"><p class="error-text"><b>${error.type}</b> ${error.message}</p>
    ${!error.retryable && html`<p class="soft">the handler asked for no further attempt</p>`}<${Details} details=${error.details} /></div><//>`;
}

function Details({ details }) {
  if (details === null || details === undefined) return null;
  const trace = typeof details === "string" ? details : details.traceback;
  if (typeof trace === "string") return html`<details open><summary>traceback</summary><pre class="trace">${trace}</pre></details>`;
  return html`<details><summary>details</summary><${Json} value=${details} label="error details" /></details>`;
}

/** Waiting and running in their colours, then every step with the error that ended it. */
function Timeline({ task, story }) {
  // When a back-off ended is not remembered: a step that took no time is no step to show.
  const events = story.events.filter((one, at) => one.event_type !== "queued" || one.created_at_ms > story.events[at - 1].created_at_ms);
  const ended = new Map(story.attempts.map((one) => [one.ended_at_ms, one]));
  return html`<${Panel} title="Timeline">
    <${Strip} events=${events} isOver=${isOver(task)} />
    <ol class="timeline">${events.map((event, at) => {
      const next = events[at + 1];
      const attempt = ended.get(event.created_at_ms);
      const isEnding = attempt && event.event_type === attempt.ending;
      return html`<li key=${at}><i class="dot" data-tone=${tone(isEnding && attempt.ending === "failed" ? "failed" : event.to_state)} aria-hidden="true"></i>
        <div class="row"><b>${event.event_type.replaceAll("_", " ")}</b><span class="soft">${event.from_state ? `${event.from_state} → ` : ""}${event.to_state}</span>
          ${!next && isOver(task) && task.worker_id && event.from_state === "running" && !isEnding && html`<span class="soft">attempt ${task.attempt} on <a href=${`/workers/${segment(task.worker_id)}`}>${task.worker_id}</a></span>`}
          ${isEnding && html`<span class="soft">attempt ${attempt.attempt}${attempt.worker_id ? html` on <a href=${`/workers/${segment(attempt.worker_id)}`}>${attempt.worker_id}</a>` : ""}</span>`}
          <span class="end"><${Time} at=${event.created_at_ms} />${next && html` · ${duration(next.created_at_ms - event.created_at_ms)}`}</span></div>
        ${isEnding && attempt.error && html`<p class="error-text">${attempt.error.type}: ${attempt.error.message}</p><${Details} details=${attempt.error.details} />`}
      </li>`;
    })}</ol><//>`;
}

function Strip({ events, isOver: isFinal }) {
  const end = isFinal ? events.at(-1).created_at_ms : Date.now();
  const parts = events.map((event, at) => ({ state: event.to_state, ms: Math.max(0, (events[at + 1]?.created_at_ms ?? end) - event.created_at_ms) })).filter((one) => one.ms > 0 && !["succeeded", "failed", "cancelled"].includes(one.state));
  if (!parts.length) return null;
  return html`<div class="strip" role="img" aria-label=${parts.map((one) => `${one.state} ${duration(one.ms)}`).join(", ")}>
    ${parts.map((one, at) => html`<i key=${at} data-tone=${tone(one.state)} class=${one.state === "running" ? "" : "is-waiting"} title=${`${one.state} ${duration(one.ms)}`} style=${{ flexGrow: one.ms }}></i>`)}</div>`;
}

function Actions({ task, reload }) {
  const change = (verb, said, question) => async () => {
    if (question && !(await confirm(question))) return;
    await act(() => post(`/api/tasks/${task.id}/${verb}`), said);
    reload();
  };
  const acknowledge = () => act(() => post(`/api/tasks/${task.id}/acknowledge`, { undo: Boolean(task.acknowledged) }).finally(reload), task.acknowledged ? "needs attention again" : "acknowledged");
  return html`
    ${may("submit") && !isOver(task) && html`<${Button} kind="danger" onClick=${change("cancel", "cancelled", { title: "Cancel this task?", text: "It ends now. A worker that runs it is told to stop.", label: "cancel the task" })}>cancel<//>`}
    ${may("submit") && (task.state === "failed" || task.state === "cancelled") && html`<${Button} kind="primary" onClick=${change("retry", "queued again")}>retry<//>`}
    ${may("submit") && task.state === "failed" && html`<${Button} onClick=${acknowledge}>${task.acknowledged ? "undo acknowledgement" : "acknowledge"}<//>`}
    <${Copy} text=${() => asCurl(task)}>copy as curl<//><${Copy} text=${() => asCommand(task)}>copy as CLI<//>`;
}

/** The task as it was submitted; what has its default is left out. */
export function submission(task) {
  const texts = { name: task.name, payload: task.payload, queue: task.queue === "default" ? undefined : task.queue, priority: task.priority || undefined,
    requires: task.requires.length ? task.requires : undefined, timeout_ms: task.timeout_ms ?? undefined, max_attempts: task.max_attempts === 3 ? undefined : task.max_attempts,
    labels: Object.keys(task.labels || {}).length ? task.labels : undefined, concurrency: task.concurrency ?? undefined, rate: task.rate ?? undefined, fair_key: task.fair_key ?? undefined };
  return Object.fromEntries(Object.entries(texts).filter(([, value]) => value !== undefined));
}

export const asCurl = (task) => `curl -X POST ${shellWord(`${address}/api/tasks`)} -H 'content-type: application/json' -d ${shellWord(JSON.stringify(submission(task)))}`;

export function asCommand(task) {
  const fields = submission(task);
  const words = ["rota submit", shellWord(fields.name), "--payload", shellWord(JSON.stringify(fields.payload))];
  if (fields.queue) words.push("--queue", shellWord(fields.queue));
  if (fields.priority) words.push("--priority", String(fields.priority));
  for (const one of fields.requires || []) words.push("--requires", shellWord(one));
  if (fields.timeout_ms) words.push("--timeout-ms", String(fields.timeout_ms));
  if (fields.max_attempts) words.push("--max-attempts", String(fields.max_attempts));
  const texts = Array.isArray(fields.labels) ? fields.labels : Object.entries(fields.labels || {}).map(([key, value]) => `${key}=${value}`);
  for (const one of texts) words.push("--label", shellWord(one));
  return [...words, "--url", shellWord(address)].join(" ");
}
