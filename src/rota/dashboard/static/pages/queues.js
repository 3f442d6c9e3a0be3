// The queues: depth, age and rates of each, and the reason why its tasks wait.
import { post, withQuery } from "../api.js";
import { Chart, Spark, charted } from "../chart.js";
import { act, confirm } from "../dialog.js";
import { duration, plural, rate, short } from "../format.js";
import { html } from "../lib.js";
import { useResource } from "../resource.js";
import { link, segment, setQuery } from "../router.js";
import { may } from "../session.js";
import { Badge, Button, Count, Duration, Empty, Header, Panel, Problem } from "../ui.js";
import { Settings, SettingsMark } from "./queue_settings.js";

const CHARTED = 20; // queues whose last hour stands in the table

export default function Queues({ query }) {
  const queues = useResource("/api/queues", { on: ["task-", "queue-"], every: 3000 });
  const backlog = useResource("/api/backlog", { on: ["task-", "queue-", "worker-"], every: 3000 });
  const named = (queues.data?.items || []).slice(0, CHARTED).map((one) => one.name).sort();
  const series = useResource(named.length ? withQuery("/api/series", { queue: named }) : null, { every: 10_000 });
  const items = (queues.data?.items || []).filter((one) => !query.find || one.name.includes(query.find));
  const lanes = backlog.data?.items || [];
  return html`<${Header} title="Queues" sub=${queues.data && plural(queues.data.items.length, "queue")}>
      <label class="field"><span class="unseen">find</span><input data-search type="search" placeholder="find a queue" value=${query.find || ""} onInput=${(event) => setQuery({ find: event.target.value }, { replace: true })} /></label><//>
    ${query.queue && html`<${Hour} queue=${query.queue} /><${Settings} queue=${(queues.data?.items || []).find((one) => one.name === query.queue)} reload=${queues.reload} />`}
    <${Panel}>${items.length ? html`<div class="scroll"><table class="cards">
      <thead><tr><th>queue</th><th class="right">queued</th><th class="right">oldest</th><th class="right">running</th><th class="right hide-narrow">scheduled</th><th class="right hide-narrow">in / s</th><th class="right">out / s</th><th class="right hide-narrow">failed / s</th><th class="hide-narrow">last hour</th><th>why it waits</th><th class="tight"></th></tr></thead>
      <tbody>${items.map((one) => html`<${Row} key=${one.name} queue=${one} series=${series.data} lanes=${lanes.filter((lane) => lane.queue === one.name)} reload=${() => { queues.reload(); backlog.reload(); }} />`)}</tbody></table></div>`
      : queues.data ? html`<${Empty}>${query.find ? "No queue matches." : "No task has been submitted yet."}<//>` : html`<${Problem} of=${queues} />`}<//>
    <${Waiting} lanes=${lanes.filter((one) => one.queued)} />`;
}

function Row({ queue, series, lanes, reload }) {
  const waiting = lanes.filter((one) => one.queued).sort((left, right) => Number(right.why.is_stuck) - Number(left.why.is_stuck) || right.queued - left.queued);
  const worst = waiting[0];
  return html`<tr>
    <td class="clip"><a href=${link("/tasks", { queue: queue.name })}><b>${queue.name}</b></a> ${queue.paused && html`<${Badge} state="paused" />`}<${SettingsMark} queue=${queue} /></td>
    <td class="right" data-label="queued"><a href=${link("/tasks", { queue: queue.name, state: "queued" })}><${Count} of=${queue.depth} /></a></td>
    <td class="right" data-label="oldest"><${Duration} ms=${queue.oldest_age_ms} /></td>
    <td class="right" data-label="running"><${Count} of=${queue.running} /></td><td class="right hide-narrow"><${Count} of=${queue.scheduled} /></td>
    <td class="right hide-narrow number">${rate(queue.submitted_per_s)}</td><td class="right number" data-label="out / s">${rate(queue.finished_per_s)}</td>
    <td class=${`right hide-narrow number ${queue.failed_per_s ? "error-text" : "faint"}`}>${rate(queue.failed_per_s)}</td>
    <td class="hide-narrow tight"><a href=${link("/queues", { queue: queue.name })} aria-label=${`last hour of ${queue.name}`}><${Spark} series=${series} track=${series?.items.find((track) => track.queue === queue.name)} name="finished" tone="green" label=${`${queue.name}: finished in the last hour`} /></a></td>
    <td class="grow"><span class=${worst?.why.is_stuck ? "error-text" : "soft"}>${worst ? worst.why.text : queue.depth ? "…" : ""}</span></td>
    <td class="tight"><a class="button quiet small" href=${link("/queues", { queue: queue.name })}>details</a><${Switch} queue=${queue} reload=${reload} /></td></tr>`;
}

function Switch({ queue, reload }) {
  if (!may("operate")) return null;
  const set = (verb) => async () => {
    if (verb === "pause" && !(await confirm({ title: `Pause queue ${queue.name}?`, text: "Workers get no more tasks from it. Running tasks finish.", label: "pause it" }))) return;
    await act(() => post(`/api/queues/${segment(queue.name)}/${verb}`), verb === "pause" ? "paused" : "resumed");
    reload();
  };
  return queue.paused ? html`<${Button} kind="small primary" onClick=${set("resume")}>resume<//>` : html`<${Button} kind="small" onClick=${set("pause")}>pause<//>`;
}

const Waiting = ({ lanes }) => (lanes.length ? html`<${Panel} title="Waiting tasks, by what they need from a worker"><div class="scroll"><table class="cards">
  <thead><tr><th>task</th><th>queue</th><th class="hide-narrow">requires</th><th class="right">queued</th><th class="right">oldest</th><th>why it waits</th></tr></thead>
  <tbody>${lanes.map((one) => html`<tr key=${one.queue + one.name + one.requires}><td><a href=${link("/tasks", { state: "queued", queue: one.queue, name: one.name })}>${one.name}</a></td><td>${one.queue}</td>
    <td class="hide-narrow"><span class="chips">${one.requires.map((name) => html`<span class="chip" key=${name}>${name}</span>`)}</span></td>
    <td class="right" data-label="queued"><${Count} of=${one.queued} /></td><td class="right" data-label="oldest"><${Duration} ms=${one.oldest_age_ms} /></td><td class="grow"><span class=${one.why.is_stuck ? "error-text" : "soft"}>${one.why.text}</span></td></tr>`)}</tbody></table></div><//>` : null);

function Hour({ queue }) {
  const series = useResource(link("/api/series", { queue }), { every: 10_000 });
  const found = series.data?.items[0];
  const close = html`<a class="button quiet small" href="/queues">close</a>`;
  if (!found) return html`<${Panel} title=${`${queue}: last hour`} tools=${close}>${series.data ? html`<${Empty}>There is no chart for it yet.<//>` : html`<${Problem} of=${series} />`}<//>`;
  const { times, all: one, perSecond } = charted(series.data, found);
  return html`<${Panel} title=${`${queue}: last hour`} tools=${close}><div class="grid">
    <div class="span-4"><${Chart} title="Throughput / s" times=${times} say=${rate} lines=${[{ label: "in", tone: "amber", values: perSecond(one.submitted) }, { label: "out", tone: "green", values: perSecond(one.finished), isFilled: true }, { label: "failed", tone: "red", values: perSecond(one.failed) }]} /></div>
    <div class="span-4"><${Chart} title="Backlog" times=${times} say=${short} lines=${[{ label: "queued", tone: "amber", values: one.depth, isFilled: true }, { label: "running", tone: "blue", values: one.running }]} /></div>
    <div class="span-4"><${Chart} title="Oldest wait" times=${times} say=${duration} least=${1000} lines=${[{ label: "oldest", tone: "violet", values: one.oldest_age_ms, isFilled: true }]} /></div></div><//>`;
}
