// The first page: what needs an answer, what cannot start and what fails come first.
import { Chart, Spark, charted } from "../chart.js";
import { duration, plural, rate, short, whole } from "../format.js";
import { html } from "../lib.js";
import { useResource } from "../resource.js";
import { address } from "../root.js";
import { link } from "../router.js";
import { RUN_STATES, tone } from "../states.js";
import { NeedsYou } from "./needs.js";
import { Table as RunTable } from "./runs.js";
import { Badge, Bar, Count, Duration, Empty, Header, Panel, Problem, Time, opens } from "../ui.js";

const SHOWN_FAILURES = 3;
const LATE_MS = 60_000; // a queue whose oldest task waits for longer is worth a line

export default function Overview({ overview, isOld }) {
  const series = useResource("/api/series", { every: 10_000 });
  const backlog = useResource("/api/backlog", { on: ["task-", "queue-", "worker-"], every: 5000 });
  const queues = useResource("/api/queues", { on: ["task-", "queue-"], every: 5000 });
  const failures = useResource(overview?.unacknowledged ? "/api/failures" : null, { on: ["task-failed"], every: 30_000 });
  if (!overview) return html`<${Header} title="Overview" /><${Problem} of=${backlog} />`;
  return html`<${Header} title="Overview" />
    <${Figures} overview=${overview} queues=${queues.data?.items || []} isOld=${isOld} />
    ${isUnused(overview) && html`<${FirstSteps} />`}
    <${NeedsYou} counts=${overview.waits} />
    <${CannotStart} overview=${overview} backlog=${backlog} queues=${queues.data?.items || []} isOld=${isOld} />
    <${Failing} failures=${(overview.unacknowledged && failures.data?.items) || []} />
    <${Charts} series=${series.data} />
    <div class="grid">
      <div class="span-8"><${Queues} items=${queues.data?.items || []} series=${series.data} /><${LastRuns} runs=${overview.runs} /></div>
      <div class="span-4"><${Workers} counts=${overview.workers} /><${Runs} counts=${overview.runs} /><${Shards} shards=${overview.shards} /></div>
    </div>`;
}

function Figures({ overview, queues, isOld }) {
  const sum = (name) => queues.reduce((total, one) => total + one[name], 0);
  const oldest = Math.max(0, ...queues.map((one) => one.oldest_age_ms || 0));
  const { tasks, workers } = overview;
  const items = [
    { value: rate(sum("finished_per_s")), unit: "finished / s", note: `${rate(sum("submitted_per_s"))} submitted / s`, href: "/queues" },
    { value: short(tasks.queued), unit: "queued", note: `${short(tasks.scheduled)} scheduled`, tone: tasks.queued ? "amber" : "", href: link("/tasks", { state: "queued" }) },
    { value: duration(oldest || null), unit: "oldest wait", note: "of any queue", tone: oldest > LATE_MS ? "orange" : "", href: "/queues" },
    { value: short(tasks.running), unit: "running", note: plural(workers.healthy || 0, "healthy worker"), tone: "blue", href: link("/tasks", { state: "running" }) },
    { value: short(overview.unacknowledged), unit: "failed", note: `${rate(sum("failed_per_s"))} / s now`, tone: overview.unacknowledged ? "red" : "", href: "/failures" },
    { value: isOld ? "–" : short(overview.stuck), unit: "cannot start", note: isOld ? "not known" : overview.stuck ? "see below" : "every task can start", tone: isOld ? "" : overview.stuck ? "red" : "green", href: link("/tasks", { state: "queued" }) },
  ];
  return html`<div class="figures">${items.map((one) => html`<a key=${one.unit} class="figure" href=${one.href} data-tone=${one.tone}>
    <b class="number">${one.value}</b><span>${one.unit}</span><small>${one.note}</small></a>`)}</div>`;
}

/** What cannot start or waits for long, and everything else that needs a look. */
function troubles(overview, backlog, queues) {
  const found = [];
  for (const one of queues.filter((queue) => queue.target_missed_ms)) {
    found.push({ key: `target ${one.name}`, tone: "red", href: link("/queues", { queue: one.name }),
      title: html`Tasks of <b>${one.name}</b> wait longer than ${duration(one.target_wait_ms).replace(".0 s", " s")}, the target of their queue`, note: html`since <${Time} at=${one.target_missed_ms} />${one.oldest_age_ms !== null && html` · the oldest has waited for ${duration(one.oldest_age_ms)}`}` });
  }
  for (const one of backlog.filter((lane) => lane.queued && lane.why.is_stuck)) {
    found.push({ key: `stuck ${one.queue} ${one.name} ${one.requires}`, tone: "red", href: link("/tasks", { state: "queued", queue: one.queue, name: one.name }),
      title: html`${plural(one.queued, "task")} <b>${one.name}</b> in <b>${one.queue}</b> cannot start: ${one.why.text}`,
      note: html`waiting for ${duration(one.oldest_age_ms)}${one.requires.length ? html` · requires ${one.requires.join(", ")}` : ""}` });
  }
  for (const one of backlog.filter((lane) => lane.queued && !lane.why.is_stuck && (lane.oldest_age_ms || 0) > LATE_MS)) {
    found.push({ key: `late ${one.queue} ${one.name} ${one.requires}`, tone: "amber", href: link("/tasks", { state: "queued", queue: one.queue, name: one.name }),
      title: html`${plural(one.queued, "task")} <b>${one.name}</b> in <b>${one.queue}</b>: ${one.why.text}`, note: html`the oldest has waited for ${duration(one.oldest_age_ms)}` });
  }
  for (const name of overview.paused_queues.filter((queue) => !backlog.some((lane) => lane.queue === queue && lane.queued))) {
    found.push({ key: `paused ${name}`, tone: "slate", href: "/queues", title: html`Queue <b>${name}</b> is paused`, note: "no task waits in it" });
  }
  const { workers, shards } = overview;
  for (const state of ["unhealthy", "degraded", "quarantined", "draining"].filter((one) => workers[one])) {
    found.push({ key: state, tone: tone(state), href: link("/workers"), title: html`${plural(workers[state], "worker")} ${state}` });
  }
  if (shards.unowned || shards.moving) found.push({ key: "shards", tone: shards.unowned ? "red" : "violet", href: "/services", title: html`${plural(shards.unowned, "shard")} unowned, ${whole(shards.moving)} moving` });
  return found;
}

function CannotStart({ overview, backlog, queues, isOld }) {
  const isUnknown = isOld || backlog.problem;
  if (!backlog.data) return html`<${Panel} title="Cannot start"><${Problem} of=${backlog} /><//>`;
  const found = troubles(overview, backlog.data.items, queues);
  return html`<${Panel} title="Cannot start">
    <${Alerts} items=${found} />
    ${!found.length && html`<p class="alert"><i class="dot" data-tone=${isUnknown ? "grey" : "green"} aria-hidden="true"></i><span>${isUnknown ? "Not known: the coordinator does not answer." : "Nothing is stuck. Every task that waits has a worker that will take it."}</span></p>`}
  <//>`;
}

function Failing({ failures }) {
  if (!failures.length) return null;
  const items = failures.slice(0, SHOWN_FAILURES).map((one) => ({ key: one.fingerprint, tone: "red", href: "/failures",
    title: html`${plural(one.count, "task")} <b>${one.name}</b> failed: ${one.error ? `${one.error.type}: ${one.error.message}`.slice(0, 240) : "no reason given"}`,
    note: html`last <${Time} at=${one.last_failed_at_ms} />` }));
  return html`<${Panel} title="Failing" tools=${html`<a href="/failures">all</a>`}><${Alerts} items=${items} /><//>`;
}

const Alerts = ({ items }) => items.map((one) => html`<a key=${one.key} class="alert" href=${one.href}><i class="dot" data-tone=${one.tone} aria-hidden="true"></i><div>${one.title}${one.note && html`<span class="soft">${one.note}</span>`}</div></a>`);

/** Nothing was ever submitted, no worker has come, and no workflow has run. */
const isUnused = ({ tasks, workers, runs }) => [tasks, workers, runs].every((counts) => Object.values(counts).every((count) => !count));

const FirstSteps = () => html`<${Panel} title="First steps"><ol class="body steps">
  <li>Write a task: <code>@app.task</code> on a function in <code>tasks.py</code>.</li>
  <li>Start a worker: <code>rota worker tasks:app --url ${address}</code></li>
  <li>Submit a task: <code>rota submit NAME --url ${address} --wait</code></li>
</ol><//>`;

function Charts({ series }) {
  if (!series?.items.length) return null;
  const { times, all, perSecond } = charted(series, series.items[0]);
  return html`<div class="grid">
    <div class="span-4"><${Panel}><${Chart} title="Throughput / s" times=${times} say=${rate} lines=${[
      { label: "in", tone: "amber", values: perSecond(all.submitted) },
      { label: "out", tone: "green", values: perSecond(all.finished), isFilled: true },
      { label: "failed", tone: "red", values: perSecond(all.failed) }]} /><//></div>
    <div class="span-4"><${Panel}><${Chart} title="Backlog" times=${times} say=${short} lines=${[
      { label: "queued", tone: "amber", values: all.depth, isFilled: true }, { label: "running", tone: "blue", values: all.running }]} /><//></div>
    <div class="span-4"><${Panel}><${Chart} title="Oldest wait" times=${times} say=${duration} least=${1000} lines=${[
      { label: "of any queue", tone: "violet", values: all.oldest_age_ms, isFilled: true }]} /><//></div>
  </div>`;
}

const Queues = ({ items, series }) => html`<${Panel} title="Queues" tools=${html`<a href="/queues">all</a>`}>
  ${items.length ? html`<div class="scroll"><table>
    <thead><tr><th>queue</th><th class="right">queued</th><th class="right">running</th><th class="right hide-narrow">scheduled</th><th class="right">oldest</th><th class="right">finished / s</th><th class="hide-narrow tight">last hour</th></tr></thead>
    <tbody>${[...items].sort((left, right) => right.depth - left.depth).slice(0, 8).map((one) => html`<tr key=${one.name} ...${opens(link("/tasks", { queue: one.name }))}>
      <td><a href=${link("/tasks", { queue: one.name })}>${one.name}</a> ${one.paused && html`<${Badge} state="paused" />`}</td>
      <td class="right"><${Count} of=${one.depth} /></td><td class="right"><${Count} of=${one.running} /></td><td class="right hide-narrow"><${Count} of=${one.scheduled} /></td>
      <td class="right"><${Duration} ms=${one.oldest_age_ms} /></td><td class="right number">${rate(one.finished_per_s)}</td><td class="hide-narrow tight"><${Spark} series=${series} track=${series?.items.find((track) => track.queue === one.name)} name="finished" tone="green" label=${`${one.name}: finished in the last hour`} /></td></tr>`)}</tbody></table></div>`
    : html`<${Empty}>No task has been submitted yet.<//>`}
<//>`;

function Workers({ counts }) {
  const total = (counts.healthy || 0) + (counts.degraded || 0) + (counts.unhealthy || 0);
  return html`<${Panel} title="Workers" tools=${html`<a href="/workers">all</a>`}><div class="body">
    ${total ? html`<${Shares} counts=${counts} states=${["healthy", "degraded", "unhealthy"]} />` : html`<p class="faint">No worker is registered.</p>`}
    ${["draining", "quarantined"].filter((one) => counts[one]).map((one) => html`<p key=${one}><${Badge} state=${one}>${counts[one]} ${one}<//></p>`)}
  </div><//>`;
}

function Runs({ counts }) {
  const states = RUN_STATES.filter((one) => counts[one]);
  if (!states.length) return null;
  return html`<${Panel} title="Runs" tools=${html`<a href="/runs">all</a>`}><div class="body"><${Shares} counts=${counts} states=${states} href=${(state) => link("/runs", { state })} /></div><//>`;
}

const SHOWN_RUNS = 6;

function LastRuns({ runs }) {
  const isAny = RUN_STATES.some((one) => runs[one]);
  const found = useResource(isAny ? `/api/runs?limit=${SHOWN_RUNS}` : null, { on: ["run-"], every: 5000 });
  if (!found.data?.items.length) return null;
  return html`<${Panel} title="Newest runs" tools=${html`<a href="/runs">all</a>`}><${RunTable} items=${found.data.items} /><//>`;
}

function Shards({ shards }) {
  if (!shards.services) return null;
  return html`<${Panel} title="Shards" tools=${html`<a href="/services">services</a>`}><div class="body">
    <p class="number">${whole(shards.owned)} of ${whole(shards.shards)} owned</p><p><${Bar} kind="wide" share=${shards.owned / Math.max(1, shards.shards)} state=${shards.unowned ? "degraded" : "succeeded"} label="owned shards" /></p>
    <p class="soft">${whole(shards.moving)} moving · ${whole(shards.unowned)} unowned</p></div><//>`;
}

const Shares = ({ counts, states, href }) => html`<div class="strip strip-flush" aria-hidden="true">${states.filter((one) => counts[one]).map((one) => html`<i key=${one} data-tone=${tone(one)} style=${{ flexGrow: counts[one] || 0 }}></i>`)}</div>
  <p class="legend">${states.filter((one) => counts[one]).map((one) => {
    const badge = html`<${Badge} state=${one}>${short(counts[one])} ${one.replaceAll("_", " ")}<//>`;
    return href ? html`<a key=${one} href=${href(one)}>${badge}</a>` : html`<span key=${one}>${badge}</span>`;
  })}</p>`;
