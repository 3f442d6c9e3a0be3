// One schedule: its next and last firings, and what operators do with it.
import { del, post } from "../api.js";
import { FormDialog, act, confirm } from "../dialog.js";
import { absolute, duration, plural, whole } from "../format.js";
import { Json } from "../json.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { go, segment } from "../router.js";
import { may } from "../session.js";
import { Button, Empty, Facts, Header, Panel, Problem, Time } from "../ui.js";
import { BackfillForm } from "./backfill_form.js";
import { ScheduleForm } from "./schedule_form.js";
import { MISSED, OVERLAPS, zoned } from "./schedule_words.js";
import { Marks, Outcome, Target, Times, failed } from "./schedules.js";

const UPCOMING = 10;
const OFTEN = { on: ["schedule-"], every: 5000 };

export default function Schedule({ params }) {
  const path = `/api/schedules/${segment(params.name)}`;
  const schedule = useResource(path, OFTEN);
  const next = useResource(`${path}/next?count=${UPCOMING}`, OFTEN);
  if (!schedule.data) return html`<${Header} title=${params.name} /><${Problem} of=${schedule} />`;
  const one = schedule.data;
  const reload = () => { schedule.reload(); next.reload(); };
  return html`<${Header} title=${one.name} sub=${html`<${Target} schedule=${one} /> · <${Times} schedule=${one} /> <${Marks} schedule=${one} />`}>
      ${may("submit") && html`<${Actions} schedule=${one} path=${path} reload=${reload} />`}<//>
    ${schedule.problem && html`<${Problem} of=${schedule} />`}
    <${Why} schedule=${one} />
    <div class="grid"><${Panel} kind="span-6" title=${one.paused ? "Next times, if it were not paused" : "Next firings"} tools=${html`<span class="soft">${one.timezone}</span>`}><${Upcoming} schedule=${one} next=${next} /><//>
      <div class="span-6"><${Panel} title="Rules"><div class="body"><${Facts} items=${facts(one)} /></div><//>
        <${Panel} title=${one.run ? "Run" : "Task"}><${Json} value=${one.run || one.task} /><//></div></div>
    <${Panel} title="Last firings"><${Firings} schedule=${one} /><//>`;
}

function Why({ schedule }) {
  const { paused, orphaned, failures } = schedule;
  const isOver = !paused && schedule.next_at_ms === null;
  return html`${paused && html`<div class="why" data-tone="slate"><span><b>Paused</b> <${Time} at=${schedule.paused_at_ms} />${schedule.paused_by && ` by ${schedule.paused_by}`}${schedule.note && `: ${schedule.note}`}</span></div>`}
    ${isOver && html`<div class="why" data-tone="grey"><b>It has ended: there are no further times.</b></div>`}
    ${failures > 0 && html`<div class="why" data-tone="red"><b>${failed(schedule)}</b></div>`}
    ${orphaned && html`<div class="why" data-tone="amber"><span><b>The code of ${schedule.source} no longer has it.</b> It keeps firing until it is paused or deleted.</span></div>`}`;
}

function Upcoming({ schedule, next }) {
  if (!next.data) return html`<${Problem} of=${next} />`;
  const items = schedule.paused || schedule.next_at_ms !== null ? next.data.items : [];
  if (!items.length) return html`<${Empty}>None.<//>`;
  return html`<table class="upcoming"><tbody>${items.map((at) => html`<tr key=${at}><td class="number" title=${absolute(at)}>${zoned(at, schedule.timezone)}</td><td class="right soft nowrap"><${Time} at=${at} /></td></tr>`)}</tbody></table>`;
}

const facts = (one) => [
  ["missed", `${MISSED[one.missed]}${one.missed === "skip" ? "" : `, up to ${duration(one.catch_up_ms)} late`}`],
  ["while one runs", OVERLAPS[one.overlap]],
  ["excluded", one.exclude.join(", ")],
  ["from", one.starts_at_ms && zoned(one.starts_at_ms, one.timezone)],
  ["until", one.ends_at_ms && zoned(one.ends_at_ms, one.timezone)],
  ["jitter", one.jitter_ms > 0 ? `up to ${duration(one.jitter_ms)}` : null],
  ["pauses after", one.pause_on_failure && `${plural(one.pause_on_failure, "failure")} in a row`],
  ["fired", `${whole(one.fired)}${one.max_firings ? ` of at most ${whole(one.max_firings)}` : ""}`],
  ["last success", one.previous_success_ms && html`for <${Time} at=${one.previous_success_ms} />`],
  ["from code", one.source && `${one.source}${one.pinned ? ", pinned: the code does not change it" : ""}`],
  ["changed", html`<${Time} at=${one.updated_at_ms} />`],
];

function Firings({ schedule }) {
  if (!schedule.firings.length) return html`<${Empty}>It has not fired yet.<//>`;
  return html`<div class="scroll"><table class="cards schedules"><thead><tr><th>time</th><th>outcome</th><th>task or run</th><th>decided</th><th>note</th></tr></thead>
    <tbody>${schedule.firings.map((one, at) => html`<tr key=${`${one.nominal_ms} ${one.fired_at_ms} ${at}`}>
      <td class="number nowrap" title=${absolute(one.nominal_ms)}>${zoned(one.nominal_ms, schedule.timezone)}</td>
      <td class="nowrap"><${Outcome} firing=${one} /></td><td class="break"><${Started} firing=${one} /></td>
      <td class="nowrap soft" data-label="decided"><${Time} at=${one.fired_at_ms} /></td>
      <td class="break soft">${[one.manual && "on demand", one.reason].filter(Boolean).join(": ")}</td></tr>`)}</tbody></table></div>`;
}

function Started({ firing: { task_id: task, run_id: run } }) {
  if (run) return html`<a href=${`/runs/${segment(run)}`}><code>${run}</code></a>`;
  return task ? html`<a href=${`/tasks/${segment(task)}`}><code>${task}</code></a>` : null;
}

function Actions({ schedule, path, reload }) {
  const [shown, setShown] = useState(""); // the dialog that is open
  const show = (name) => () => setShown(name);
  const close = () => setShown("");
  const { name, source } = schedule;
  const resume = () => act(() => post(`${path}/resume`).finally(reload), `${name} fires again from its next time on`);
  const run = async () => {
    if (!(await confirm({ title: `Run ${name} now?`, text: `It fires once, besides its times${schedule.paused ? ", although it is paused" : ""}. While an earlier one runs: ${OVERLAPS[schedule.overlap]}.`, label: "run it now", kind: "primary" }))) return;
    await act(() => post(`${path}/run`).finally(reload), (firing) => `${name}: ${firing.outcome.replaceAll("_", ": ")}`);
  };
  const remove = async () => {
    const again = source && !schedule.orphaned ? ` The code of ${source} has it: the next worker that registers deploys it again.` : "";
    if (!(await confirm({ title: `Delete ${name}?`, text: `Its history goes with it. The tasks and runs that it has started stay.${again}`, label: "delete it" }))) return;
    if (await act(() => del(path), `${name} is deleted`)) go("/schedules");
  };
  const pause = async (fields) => { await post(`${path}/pause`, fields); reload(); return `${name} is paused`; };
  return html`${schedule.paused ? html`<${Button} kind="primary" onClick=${resume}>resume<//>` : html`<${Button} onClick=${show("pause")}>pause …<//>`}
    <${Button} onClick=${run}>run now …<//> <${Button} onClick=${show("backfill")}>backfill …<//> <${Button} onClick=${show("change")}>change …<//> <${Button} kind="danger" onClick=${remove}>delete …<//>
    ${shown === "change" && html`<${ScheduleForm} schedule=${schedule} close=${close} reload=${reload} />`}
    ${shown === "backfill" && html`<${BackfillForm} schedule=${schedule} path=${path} close=${close} reload=${reload} />`}
    ${shown === "pause" && html`<${FormDialog} title=${`Pause ${name}`} label="pause it" submit=${pause} close=${close}>
      <label class="field"><span>note for others, such as the reason</span><input name="note" maxlength="1000" autocomplete="off" autofocus /></label>
      <p class="hint">It does not fire until it is resumed. Times that pass meanwhile are skipped. Running tasks continue.</p><//>`}`;
}
