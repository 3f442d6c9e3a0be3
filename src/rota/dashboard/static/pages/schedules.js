// The list of schedules: what each starts, when it fires next, and how its last firing went.
import { withQuery } from "../api.js";
import { absolute, duration, plural } from "../format.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { link, segment } from "../router.js";
import { may } from "../session.js";
import { Badge, Button, Empty, Header, Pager, Panel, Problem, Time, opens } from "../ui.js";
import { ScheduleForm } from "./schedule_form.js";
import { addressOf, zoned } from "./schedule_words.js";

const PAGE = 50;
const SAMPLE = '@app.schedule("0 3 * * *", timezone="Europe/Berlin")\n@app.task\ndef clean() -> None: ...';

export default function Schedules({ query }) {
  const schedules = useResource(withQuery("/api/schedules", { cursor: query.cursor, limit: PAGE }), { on: ["schedule-"], every: 5000 });
  const [isMade, setMade] = useState(false);
  const items = schedules.data?.items || [];
  return html`<${Header} title="Schedules" sub="tasks and runs that start at set times">
      ${may("submit") && html`<${Button} onClick=${() => setMade(true)}>new schedule …<//>`}<//>
    ${isMade && html`<${ScheduleForm} close=${() => setMade(false)} reload=${schedules.reload} />`}
    <${Panel}>
      ${items.length ? html`<${Table} items=${items} />` : schedules.data ? html`<${Nothing} cursor=${query.cursor} />` : html`<${Problem} of=${schedules} />`}
      ${schedules.data && schedules.problem && html`<${Problem} of=${schedules} />`}
      <${Pager} next=${schedules.data?.next_cursor} shown=${plural(items.length, "schedule")} first="first" further="next" />
    <//>`;
}

function Nothing({ cursor }) {
  if (cursor) return html`<${Empty}>No further schedule.<//>`;
  return html`<div class="empty"><p>No schedule yet. One line above a task gives it one:</p>
    <pre class="sample">${SAMPLE}</pre>
    <p>Workers deploy it when they register. The button above and <code>rota schedules put</code> make one without code.</p></div>`;
}

const Table = ({ items }) => html`<div class="scroll"><table class="cards schedules">
  <thead><tr><th>schedule</th><th>starts</th><th>times</th><th>next</th><th>last</th></tr></thead>
  <tbody>${items.map((one) => html`<tr key=${one.name} ...${opens(addressOf(one.name))}>
    <td class="name"><a href=${addressOf(one.name)}><b>${one.name}</b></a> <${Marks} schedule=${one} />${one.paused && html`<span class="sub clamp" title=${one.note}>${pauseText(one)}</span>`}</td>
    <td class="break"><${Target} schedule=${one} /></td>
    <td class="break times"><${Times} schedule=${one} /></td>
    <td class="nowrap" data-label="next"><${Time} at=${one.next_at_ms} empty=${one.paused ? "–" : "over"} /></td>
    <td class="nowrap" data-label="last"><${Last} schedule=${one} /></td></tr>`)}</tbody></table></div>`;

function Last({ schedule }) {
  const [last] = schedule.firings;
  if (!last) return html`<span class="faint">never</span>`;
  return html`<${Outcome} firing=${last} /> <span class="soft"><${Time} at=${last.fired_at_ms} /></span>${schedule.failures > 0 && html`<span class="sub error-text">${failed(schedule)}</span>`}`;
}

export const failed = (schedule) => `${plural(schedule.failures, "failure")} in a row`;
export const Outcome = ({ firing }) => html`<${Badge} state=${firing.outcome}>${firing.outcome.replaceAll("_", ": ")}${firing.count > 1 && ` ×${firing.count}`}<//>`;

export const Marks = ({ schedule }) => html`<span class="chips">${schedule.paused && html`<${Badge} state="paused" />`}
  ${schedule.pinned && html`<span class="chip" title="changed by an operator: the code does not change it">pinned</span>`}
  ${schedule.orphaned && html`<span class="chip" title=${`the code of ${schedule.source} no longer has it; it keeps firing`}>orphaned</span>`}
  ${schedule.waiting > 0 && html`<span class="chip" title="firings that wait for the end of an earlier one">${schedule.waiting} waiting</span>`}</span>`;

/** Who paused it, and why, as far as that is known. */
const pauseText = ({ paused_by: by, note }) => [by && `by ${by}`, note].filter(Boolean).join(": ");

/** The task or the workflow that a schedule starts, with a link to what it has started. */
export function Target({ schedule: { task, run } }) {
  if (run) return html`<span class="soft">run</span> <a href=${`/workflows/${segment(run.workflow.replace(/@\d+$/, ""))}`}>${run.workflow}</a>`;
  const queue = task.queue || "default";
  return html`<span class="soft">task</span> <a href=${link("/tasks", { name: task.name, queue })}>${task.name}</a>${queue !== "default" && html` <span class="chip">${queue}</span>`}`;
}

/** The rules of a schedule, and the time zone that they go by. */
export function Times({ schedule: one }) {
  const rules = [one.cron ?? []].flat().map((cron) => html`<code class="rule">${cron}</code>`);
  if (one.every_ms !== null) rules.push(html`<span>every ${duration(one.every_ms).replace(".0 s", " s")}${one.offset_ms > 0 && ` + ${duration(one.offset_ms)}`}</span>`);
  if (one.at_ms.length) rules.push(html`<span title=${one.at_ms.slice(0, 10).map(absolute).join("\n")}>${one.at_ms.length === 1 ? `at ${zoned(one.at_ms[0], one.timezone)}` : `at ${plural(one.at_ms.length, "time")}`}</span>`);
  return html`<span class="chips rules">${rules.map((rule, at) => html`<span key=${at}>${rule}${at < rules.length - 1 && ","}</span>`)} <span class="soft">${one.timezone}</span></span>`;
}
