// One worker: its health, the tasks that it runs, and its quality.
import { post } from "../api.js";
import { act, confirm } from "../dialog.js";
import { duration, whole } from "../format.js";
import { html } from "../lib.js";
import { useResource } from "../resource.js";
import { link, segment } from "../router.js";
import { may } from "../session.js";
import { Badge, Bar, Button, Duration, Empty, Facts, Header, Panel, Problem, Time, opens } from "../ui.js";
import { Drain, Health } from "./drain.js";

const QUARANTINE = { text: "It gets no new tasks until it is resumed, and keeps those it has.", label: "quarantine" };

export function WorkerActions({ worker, reload, size = "" }) {
  if (!may("operate")) return null;
  const send = (verb) => post(`/api/workers/${segment(worker.id)}/${verb}`);
  const quarantine = async () => { if (await confirm({ title: `Quarantine ${worker.id}?`, ...QUARANTINE })) await act(() => send("quarantine").finally(reload), `${worker.id} is quarantined`); };
  const drain = html`<${Drain} name=${worker.id} isDraining=${worker.state !== "active"} set=${(draining) => send(draining ? "drain" : "resume")} reload=${reload} size=${size} />`;
  return worker.state !== "active" ? drain : html`<span class="nowrap">${drain} <${Button} kind=${`danger ${size}`} onClick=${quarantine}>quarantine<//></span>`;
}

export default function Worker({ params }) {
  const found = useResource(link("/api/workers", { rank: "true", limit: 1000 }), { on: ["worker-"], every: 2000 });
  const running = useResource(link("/api/tasks", { state: "running", limit: 500 }), { on: ["task-"], every: 3000 });
  const events = useResource(link("/api/events", { subject: params.id, type: "worker-*", last: 20 }), { on: ["worker-"] });
  const worker = found.data?.items.find((one) => one.id === params.id);
  if (!worker) return html`<${Header} title=${params.id} />${found.data ? html`<${Panel}><${Empty}>This worker is not registered: it left, or was silent for too long.<//><//><${Past} events=${events.data?.items || []} />` : html`<${Problem} of=${found} />`}`;
  const tasks = (running.data?.items || []).filter((one) => one.worker_id === worker.id);
  return html`<${Header} title=${worker.id} sub=${worker.node_id}><${WorkerActions} worker=${worker} reload=${found.reload} /><//>
    <${State} worker=${worker} />
    <div class="grid">
      <div class="span-4"><${About} worker=${worker} /></div>
      <div class="span-8">
        <${Panel} title="Running now" tools=${html`<span class="number soft">${worker.current_tasks} of ${worker.max_concurrent_tasks} slots</span>`}>
          ${tasks.length ? html`<div class="scroll"><table><thead><tr><th>task</th><th>queue</th><th>progress</th><th class="right">since</th></tr></thead><tbody>
            ${tasks.map((one) => html`<tr key=${one.id} ...${opens(`/tasks/${one.id}`)}><td><a href=${`/tasks/${one.id}`}><b>${one.name}</b></a><span class="sub mono">${one.id}</span></td><td>${one.queue}</td>
              <td>${typeof one.progress === "number" ? html`<${Bar} share=${one.progress} />` : html`<span class="faint">not reported</span>`}</td><td class="right"><${Duration} from=${one.started_at_ms} /></td></tr>`)}</tbody></table></div>` : html`<${Empty}>Nothing.<//>`}<//>
        <${Panel} title="Score"><div class="body"><${Parts} worker=${worker} /></div><//>
        <${Past} events=${events.data?.items || []} />
      </div>
    </div>`;
}

function State({ worker }) {
  const late = worker.health !== "healthy";
  const texts = { healthy: "its heartbeats are on time", degraded: "its heartbeat is late; it keeps what it holds, and other workers are preferred", unhealthy: "considered dead: what it held goes to other workers" };
  const held = { draining: "finishes what it holds, and gets nothing new until it is resumed", quarantined: "gets nothing new until it is resumed" };
  const shade = late ? (worker.health === "unhealthy" ? "red" : "amber") : worker.state === "active" ? "green" : "violet";
  return html`<div class="why" data-tone=${shade}><span class="nowrap"><${Health} health=${worker.health} state=${worker.state} /></span>
    <div><b>${held[worker.state] || texts[worker.health]}</b> · last heartbeat <${Time} at=${worker.last_heartbeat_ms} />, one is due every ${duration(worker.heartbeat_interval_ms)}
    ${worker.breakers.length > 0 && html`<ul>${worker.breakers.map((one) => html`<li key=${one.task}>kept from <b>${one.task}</b>, which it keeps failing${one.until_ms ? html`; tried again <${Time} at=${one.until_ms} />` : ""}</li>`)}</ul>`}</div></div>`;
}

const About = ({ worker }) => html`<${Panel} title="About"><div class="body"><${Facts} items=${[
  ["health", html`<${Badge} state=${worker.health} />`], ["state", html`<${Badge} state=${worker.state} />`],
  ["group", worker.group], ["registered", html`<${Time} at=${worker.started_at_ms} />`], ["incarnation", worker.incarnation],
  ["lease", `${duration(worker.lease_ms)} of silence`],
  ["capabilities", worker.capabilities.length ? html`<span class="chips">${worker.capabilities.map((one) => html`<span class="chip" key=${one}>${one}</span>`)}</span>` : "none"],
  ["queues", worker.queues ? worker.queues.join(", ") : "all"],
  ["tasks", worker.tasks ? html`<span class="chips">${worker.tasks.map((one) => html`<span class="chip" key=${one}>${one}</span>`)}</span>` : "any"],
  ["completed", whole(worker.metrics.tasks_completed)], ["failed", whole(worker.metrics.tasks_failed)],
  ["average", duration(worker.metrics.average_task_duration_ms)],
  ["p50 · p95 · p99", [worker.metrics.p50_ms, worker.metrics.p95_ms, worker.metrics.p99_ms].map(duration).join(" · ")],
  ...Object.entries(worker.load || {}).map(([name, value]) => [`load ${name}`, String(Math.round(value * 1000) / 1000)]),
]} /></div><//>`;

const Parts = ({ worker }) => html`<p><b class="number">${worker.priority?.toFixed(3)}</b> <span class="soft">score; the best worker that can take a task gets it</span></p>
  <div class="facts">${[["free slots", "capacity"], ["success", "success"], ["speed", "speed"], ["slow start", "slow_start"]].map(([label, name]) => html`<div key=${name}><span class="soft">${label}</span><span><${Bar} share=${worker.score?.[name]} state="running" label=${label} /> <span class="number">${worker.score?.[name].toFixed(2)}</span></span></div>`)}</div>`;

const Past = ({ events }) => (events.length ? html`<${Panel} title="Events"><ul class="log">${[...events].reverse().map((one) => html`<li key=${one.seq}><${Time} at=${one.at_ms} /> <b>${one.type}</b> <span class="soft">${Object.entries(one.data).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(" · ")}</span></li>`)}</ul><//>` : null);
