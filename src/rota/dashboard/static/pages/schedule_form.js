// The form that makes or changes a schedule, with the times that would follow from it.
import { ApiProblem, get, post, put } from "../api.js";
import { FormDialog } from "../dialog.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { go, segment } from "../router.js";
import { Empty, Time } from "../ui.js";
import { MISSED, OVERLAPS, addressOf, zoned } from "./schedule_words.js";
import { readTime, timeZones, writeTime } from "./zoned_times.js";

const PREVIEWED = 5;
const PREVIEW_AFTER_MS = 300; // of quiet in the fields
// What a schedule is made of; its view has its state as well.
const KEPT = ["task", "run", "catch_up_ms", "with_times"];

const lines = (text) => text.split("\n").map((one) => one.trim()).filter(Boolean);
const number = (text) => (text.trim() === "" ? undefined : Number(text));
const ms = (text) => (text.trim() === "" ? undefined : Math.round(Number(text) * 1000));
const seconds = (value) => (value ? value / 1000 : "");

/** The part of a schedule that its times follow from. */
function timesOf(fields) {
  const zone = fields.timezone.trim() || "UTC";
  const time = (name) => (fields[name].trim() ? readTime(fields[name], zone, name) : undefined);
  const cron = lines(fields.cron);
  return {
    cron: cron.length > 1 ? cron : cron[0],
    every_ms: ms(fields.every),
    offset_ms: ms(fields.offset),
    at_ms: lines(fields.at).map((one) => readTime(one, zone, "at")),
    timezone: zone,
    exclude: lines(fields.exclude),
    starts_at_ms: time("starts"),
    ends_at_ms: time("ends"),
    max_firings: number(fields.max_firings),
  };
}

function json(text, field) {
  if (!text.trim()) return undefined;
  try { return JSON.parse(text); } catch (error) { throw new Error(`${field} is not JSON: ${error.message}`); }
}

/** The whole schedule: what the form has, and of what it was before the parts that the form has not. */
function bodyOf(fields, before) {
  const kept = Object.fromEntries(KEPT.filter((name) => before?.[name] !== null).map((name) => [name, before?.[name]]));
  const target = fields.kind === "run"
    ? { task: undefined, run: { ...before?.run, workflow: fields.workflow.trim(), input: json(fields.input, "input") } }
    : { run: undefined, task: { ...before?.task, name: fields.task.trim(), queue: fields.queue.trim() || undefined, payload: json(fields.payload, "payload") } };
  return {
    ...kept, ...target, ...timesOf(fields),
    missed: fields.missed, overlap: fields.overlap, jitter_ms: ms(fields.jitter),
    catch_up_ms: ms(fields.catch_up), pause_on_failure: number(fields.pause_on_failure), with_times: Boolean(fields.with_times),
    pinned: fields.follow ? false : undefined,
  };
}

async function isTaken(name) {
  try {
    await get(`/api/schedules/${segment(name)}`);
    return true;
  } catch (problem) {
    if (problem instanceof ApiProblem && problem.status === 404) return false;
    throw problem;
  }
}

export function ScheduleForm({ schedule, close, reload }) {
  const [kind, setKind] = useState(schedule?.run ? "run" : "task");
  const [fields, setFields] = useState(null); // as the form has them now
  const form = useRef(null);
  const read = () => setFields(Object.fromEntries(new FormData(form.current.closest("form"))));
  useEffect(read, [kind]);
  const submit = async (given) => {
    const name = schedule?.name ?? given.name.trim();
    if (!schedule && await isTaken(name)) throw new Error(`there is a schedule named ${name} already; open it to change it`);
    await put(`/api/schedules/${segment(name)}`, bodyOf(given, schedule));
    reload();
    if (!schedule) go(addressOf(name));
    return schedule ? `${name} is changed` : `${name} is created`;
  };
  const { task, run } = schedule || {};
  return html`<${FormDialog} kind="wide" title=${schedule ? `Change ${schedule.name}` : "New schedule"} label=${schedule ? "change it" : "create"} submit=${submit} close=${close}>
    <div class="form" ref=${form} onInput=${read} onChange=${read}>
      ${!schedule && html`<label class="field"><span>name</span><input name="name" required maxlength="200" autocomplete="off" spellcheck=${false} placeholder="nightly" autofocus /></label>`}
      <div class="beside">
        <label class="field"><span>starts</span><select name="kind" value=${kind} onChange=${(event) => setKind(event.target.value)}><option value="task">a task</option><option value="run">a run</option></select></label>
        ${kind === "task" ? html`<label class="field"><span>task</span><input name="task" required maxlength="200" autocomplete="off" spellcheck=${false} defaultValue=${task?.name ?? ""} placeholder="clean" /></label>
          <label class="field"><span>queue</span><input name="queue" maxlength="100" autocomplete="off" spellcheck=${false} defaultValue=${task?.queue ?? ""} placeholder="default" /></label>`
          : html`<label class="field"><span>workflow</span><input name="workflow" required maxlength="211" autocomplete="off" spellcheck=${false} defaultValue=${run?.workflow ?? ""} placeholder="report or report@3" /></label>`}
      </div>
      ${kind === "task" ? html`<label class="field" key="payload"><span>payload as JSON</span><textarea name="payload" rows="2" spellcheck=${false} placeholder='{"days": 30}' defaultValue=${written(task?.payload)}></textarea></label>`
        : html`<label class="field" key="input"><span>input as JSON</span><textarea name="input" rows="2" spellcheck=${false} placeholder='{"days": 30}' defaultValue=${written(run?.input)}></textarea></label>`}
      <div class="beside two">
        <label class="field"><span>cron expressions, one in each line</span><textarea name="cron" rows="2" spellcheck=${false} placeholder="0 3 * * *" defaultValue=${[schedule?.cron ?? []].flat().join("\n")}></textarea></label>
        <div class="form"><label class="field"><span>time zone</span><input name="timezone" list="time-zones" autocomplete="off" spellcheck=${false} defaultValue=${schedule?.timezone ?? "UTC"} /></label>
          <div class="beside two"><label class="field"><span>interval in seconds</span><input name="every" type="number" min="1" step="any" defaultValue=${seconds(schedule?.every_ms)} /></label>
          <label class="field"><span>offset in seconds</span><input name="offset" type="number" min="0" step="any" defaultValue=${seconds(schedule?.offset_ms)} /></label></div></div>
      </div>
      <datalist id="time-zones">${timeZones().map((one) => html`<option key=${one} value=${one} />`)}</datalist>
      <${Preview} fields=${fields} />
      <details open=${hasMore(schedule)}><summary>more</summary><div class="form more"><${More} schedule=${schedule} /></div></details>
      ${schedule?.source && html`<label class="field check"><input name="follow" type="checkbox" /><span>let the code of ${schedule.source} change it again; otherwise it stays as it is here</span></label>`}
    </div><//>`;
}

const written = (value) => (value === undefined || value === null ? "" : JSON.stringify(value, null, 2));
const hasMore = (one) => Boolean(one && (one.at_ms.length || one.exclude.length || one.starts_at_ms || one.ends_at_ms || one.max_firings));
const options = (words, chosen) => Object.entries(words).map(([value, text]) => html`<option key=${value} value=${value} selected=${value === chosen}>${text}</option>`);

function More({ schedule: one }) {
  const zone = one?.timezone ?? "UTC";
  const time = (at) => (at ? writeTime(at, zone) : "");
  return html`<label class="field"><span>single times, one in each line, by the clock of the zone</span><textarea name="at" rows="2" spellcheck=${false} placeholder="2027-01-15 03:00" defaultValue=${(one?.at_ms ?? []).map(time).join("\n")}></textarea></label>
    <label class="field"><span>excluded dates or expressions, one in each line</span><textarea name="exclude" rows="2" spellcheck=${false} placeholder="2026-12-25" defaultValue=${(one?.exclude ?? []).join("\n")}></textarea></label>
    <div class="beside">
      <label class="field"><span>from</span><input name="starts" autocomplete="off" placeholder="2027-01-15 03:00" defaultValue=${time(one?.starts_at_ms)} /></label>
      <label class="field"><span>until</span><input name="ends" autocomplete="off" placeholder="no end" defaultValue=${time(one?.ends_at_ms)} /></label>
      <label class="field"><span>largest number of firings</span><input name="max_firings" type="number" min="1" placeholder="no limit" defaultValue=${one?.max_firings ?? ""} /></label>
    </div>
    <label class="field"><span>missed, while no coordinator was running</span><select name="missed">${options(MISSED, one?.missed ?? "last")}</select></label>
    <label class="field"><span>while an earlier one has not ended</span><select name="overlap">${options(OVERLAPS, one?.overlap ?? "skip")}</select></label>
    <div class="beside">
      <label class="field"><span>missed: at most this late, in seconds</span><input name="catch_up" type="number" min="0" step="any" defaultValue=${one ? one.catch_up_ms / 1000 : ""} placeholder="3600" /></label>
      <label class="field"><span>random delay of up to, in seconds</span><input name="jitter" type="number" min="0" step="any" defaultValue=${seconds(one?.jitter_ms)} placeholder="0" /></label>
      <label class="field"><span>pause after failures in a row</span><input name="pause_on_failure" type="number" min="1" defaultValue=${one?.pause_on_failure ?? ""} placeholder="never" /></label>
    </div>
    <label class="field check"><input name="with_times" type="checkbox" defaultChecked=${one?.with_times ?? false} /><span>add <code>scheduled_for_ms</code> and <code>previous_success_ms</code> to the payload or input</span></label>`;
}

/** The next times by what the fields have now, asked for when they are quiet. */
function Preview({ fields }) {
  const [found, setFound] = useState({ items: null, zone: "UTC", problem: "" });
  useEffect(() => {
    if (!fields) return undefined;
    let isOutdated = false;
    const timer = setTimeout(async () => {
      let answer;
      try {
        const times = timesOf(fields);
        const isEmpty = !times.cron && times.every_ms === undefined && !times.at_ms.length;
        const { items } = isEmpty ? { items: null } : await post(`/api/schedules/preview?count=${PREVIEWED}`, times);
        answer = { items, zone: times.timezone, problem: "" };
      } catch (wrong) {
        answer = { items: null, zone: "UTC", problem: wrong.detail || wrong.message };
      }
      if (!isOutdated) setFound(answer);
    }, PREVIEW_AFTER_MS);
    return () => { isOutdated = true; clearTimeout(timer); };
  }, [fields]);
  return html`<section class="preview" aria-label="next firings" aria-live="polite">
    ${found.problem ? html`<p class="is-wrong">${found.problem}</p>` : !found.items ? html`<${Empty}>Give it a cron expression, an interval or a single time.<//>`
      : !found.items.length ? html`<${Empty}>It never fires.<//>`
        : html`<table class="upcoming"><tbody>${found.items.map((at) => html`<tr key=${at}><td class="number">${zoned(at, found.zone)}</td><td class="right soft nowrap"><${Time} at=${at} /></td></tr>`)}</tbody></table>`}</section>`;
}
