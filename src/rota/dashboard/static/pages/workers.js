// The list of workers: health, load, and the score with its parts.
import { withQuery } from "../api.js";
import { duration, plural, short } from "../format.js";
import { html } from "../lib.js";
import { useResource } from "../resource.js";
import { address } from "../root.js";
import { link, segment, setQuery } from "../router.js";
import { Badge, Bar, Empty, Header, Panel, Problem, Tabs, Time, opens } from "../ui.js";
import { Health } from "./drain.js";
import { WorkerActions } from "./worker.js";

const HEALTHS = ["healthy", "degraded", "unhealthy"];

export default function Workers({ query, overview }) {
  const path = withQuery("/api/workers", { rank: "true", health: query.health, capability: query.capability, limit: 200, cursor: query.cursor });
  const workers = useResource(path, { on: ["worker-"], every: 2000 });
  const items = (workers.data?.items || []).filter((one) => !query.find || `${one.id} ${one.node_id} ${one.group || ""} ${one.capabilities}`.includes(query.find));
  const busy = items.reduce((sum, one) => sum + one.current_tasks, 0);
  const slots = items.reduce((sum, one) => sum + one.max_concurrent_tasks, 0);
  return html`<${Header} title="Workers" sub=${workers.data && `${plural(items.length, "worker")}, ${short(busy)} of ${short(slots)} slots in use; best first`}>
      <label class="field"><span class="unseen">find</span><input data-search type="search" placeholder="id, node, capability" value=${query.find || ""} onInput=${(event) => setQuery({ find: event.target.value }, { replace: true })} /></label><//>
    <${Tabs} label="health" items=${[{ label: "all", href: "/workers", isOn: !query.health }, ...HEALTHS.map((one) => ({ label: one, state: one, count: overview?.workers[one] || 0, href: link("/workers", { health: one }), isOn: query.health === one }))]} />
    <${Panel}>${items.length ? html`<div class="scroll"><table class="cards">
      <thead><tr><th>worker</th><th>health</th><th>load</th><th class="hide-narrow">serves</th><th class="right hide-narrow">done</th><th class="right hide-narrow">p50 · p95 · p99</th><th>score</th><th class="tight"></th></tr></thead>
      <tbody>${items.map((one) => html`<${Row} key=${one.id} worker=${one} reload=${workers.reload} />`)}</tbody></table></div>`
      : workers.data ? html`<${Empty}>${query.find || query.health ? "No worker matches." : html`No worker is registered. Start one: <code>rota worker MODULE:APP --url ${address}</code>`}<//>` : html`<${Problem} of=${workers} />`}<//>`;
}

const Row = ({ worker, reload }) => html`<tr ...${opens(`/workers/${segment(worker.id)}`)}>
  <td><a href=${`/workers/${segment(worker.id)}`}><b>${worker.id}</b></a><span class="sub">${worker.node_id}${worker.group ? ` · ${worker.group}` : ""}</span></td>
  <td class="nowrap"><${Health} health=${worker.health} state=${worker.state} /><span class="sub">heartbeat <${Time} at=${worker.last_heartbeat_ms} /></span></td>
  <td class="nowrap"><${Bar} share=${worker.current_tasks / worker.max_concurrent_tasks} label="slots in use" /><span class="sub number">${worker.current_tasks} of ${worker.max_concurrent_tasks}</span></td>
  <td class="hide-narrow"><${Serves} worker=${worker} /></td>
  <td class="right hide-narrow number">${short(worker.metrics.tasks_completed)}${worker.metrics.tasks_failed > 0 && html`<span class="sub error-text">${short(worker.metrics.tasks_failed)} failed</span>`}</td>
  <td class="right hide-narrow number nowrap">${[worker.metrics.p50_ms, worker.metrics.p95_ms, worker.metrics.p99_ms].map(duration).join(" · ")}</td>
  <td data-label="score"><${Score} worker=${worker} /></td>
  <td class="tight"><${WorkerActions} worker=${worker} reload=${reload} size="small" /></td></tr>`;

export const Serves = ({ worker }) => html`<span class="chips">
  ${worker.capabilities.map((one) => html`<a class="chip" key=${one} href=${link("/workers", { capability: one })}>${one}</a>`)}
  ${worker.queues && html`<span class="soft">queues ${worker.queues.join(", ")}</span>`}
  ${!worker.capabilities.length && !worker.queues && html`<span class="faint">every queue</span>`}
  ${worker.breakers.map((one) => html`<${Badge} key=${one.task} state=${one.state}>kept from ${one.task}<//>`)}</span>`;

/** The score is only as clear as its parts: free slots, success, speed, and the slow start. */
export function Score({ worker }) {
  if (!worker.score) return null;
  const parts = [["free", worker.score.capacity], ["success", worker.score.success], ["speed", worker.score.speed], ["start", worker.score.slow_start]];
  const text = parts.map(([name, value]) => `${name} ${value.toFixed(2)}`).join(", ");
  return html`<span class="score" title=${text}><b class="number">${worker.priority.toFixed(2)}</b><span class="parts" role="img" aria-label=${text}>${parts.map(([name, value]) => html`<i key=${name}><em style=${{ height: `${Math.max(0, Math.min(1, value)) * 100}%` }}></em></i>`)}</span></span>`;
}
