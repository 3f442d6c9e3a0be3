// The coordinator itself: the health of its parts, figures, store, settings and limits.
import { bytes, duration, whole } from "../format.js";
import { html } from "../lib.js";
import { useResource } from "../resource.js";
import { me } from "../session.js";
import { Badge, Facts, Header, Panel, Problem, Time } from "../ui.js";

export default function System({ isOld }) {
  const health = useResource("/health", { every: 3000 });
  const system = useResource("/api/system", { every: 5000 });
  const sick = health.data?.checks.filter((one) => !one.isHealthy) || [];
  return html`<${Header} title="System" sub=${system.data && `Rota ${system.data.version}`}>
      <a class="button" href="/docs">API reference</a><a class="button" href="/metrics">metrics</a><a class="button" href="/openapi.json">OpenAPI</a><//>
    ${isOld && html`<div class="why" data-tone="grey"><div><b>Not known: the coordinator does not answer.</b></div></div>`}
    ${!isOld && health.data && html`<div class="why" data-tone=${sick.length ? "red" : "green"}><${Badge} state=${sick.length ? "unhealthy" : "healthy"} />
      <div><b>${sick.length ? sick.map((one) => `${one.component}: ${one.detail || "unhealthy"}`).join("; ") : "all parts are healthy"}</b> · up for ${duration(health.data.uptime * 1000)}
      ${health.data.warnings.map((one) => html`<p key=${one} class="error-text">${one}</p>`)}</div></div>`}
    ${!isOld && !health.data && html`<${Problem} of=${health} />`}
    <div class="grid">
      <div class="span-4">
        ${system.data && html`<${Panel} title="This coordinator"><div class="body"><${Facts} items=${[
          ["version", system.data.version], ["Python", system.data.python], ["platform", system.data.platform], ["started", html`<${Time} at=${system.data.started_at_ms} />`], ...leadership(system.data),
          ["store", system.data.store.kind], ["at", html`<code>${system.data.store.place}</code>`], ["size", bytes(system.data.store.size_bytes)], ...disk(system.data.store),
          ["you are", me.value && `${me.value.name}: ${me.value.scopes.join(", ")}`]]} /></div><//>
        <${Panel} title="Figures since the start"><div class="body"><${Facts} items=${Object.entries(system.data.figures).map(([name, value]) => [FIGURES[name] || name.replaceAll("_", " "), html`<span class="number">${Number.isInteger(value) ? whole(value) : value.toFixed(2)}</span>`])} /></div><//>`}
      </div>
      <div class="span-8">
        ${!isOld && health.data && html`<${Panel} title="Parts"><div class="scroll"><table><tbody>${health.data.checks.map((one) => html`<tr key=${one.component}><td class="tight"><${Badge} state=${one.isHealthy ? "healthy" : "unhealthy"}>${one.isHealthy ? "healthy" : "unhealthy"}<//></td><td>${one.component.replace("duty:", "duty: ").replaceAll("_", " ")}</td><td class="soft">${ago(one.detail)}</td></tr>`)}</tbody></table></div><//>`}
        ${system.data && system.data.replicas.length > 1 && html`<${Panel} title="Coordinators on this store"><div class="scroll"><table class="replicas"><tbody>${system.data.replicas.map((one) => html`<tr key=${one.name}><td class="tight"><${Badge} state=${one.is_away ? "unhealthy" : "healthy"}>${one.is_away ? "away" : "here"}<//></td><td>${one.is_here ? html`<b>${one.name}</b>` : one.name}</td><td>${one.role === "leader" ? html`<b>leader</b>` : one.role}</td><td class="nowrap">${one.url || one.host}</td><td class="soft">${one.version}</td><td class="soft nowrap">seen <${Time} at=${one.seen_ms} /></td></tr>`)}</tbody></table></div><//>`}
        ${system.data && html`<${Panel} title="Settings"><div class="scroll"><table>${grouped(system.data.settings).map((group) => html`<tbody key=${group.title}><tr><th colspan="3">${group.title}</th></tr>${group.items.map((one) => html`<tr key=${one.name}><td class="nowrap"><code>${one.name}</code></td><td class="value">${one.is_default ? html`<span class="soft">${show(one)}</span>` : html`<b>${show(one)}</b>`}</td><td class="soft hide-narrow">${marked(one.description)}</td></tr>`)}</tbody>`)}</table></div><//>
        <${Panel} title="Limits"><details class="body"><summary>${system.data.limits.length} fixed limits</summary><${Facts} items=${system.data.limits.map((one) => [one.name.toLowerCase(), html`<span class="number">${one.name.endsWith("_MS") ? `${whole(one.value)} ms` : whole(one.value)}</span>`])} /></details><//>`}
      </div>
    </div>`;
}

/** What the figures count, where their names do not say it. */
const FIGURES = {
  events_per_commit: "commands per commit", commit_ms: "milliseconds per commit", changes_waiting: "changes waiting for a commit",
  lease_calls_waiting: "lease calls waiting for work", leased: "leases granted", refused_results: "results refused", evicted_workers: "workers evicted",
  held_sweeps: "evictions held back by guards", overloads: "submissions refused under load", events_told: "events written", event_watchers: "event subscribers now", forgotten: "finished tasks deleted",
};

/** The free space of the store's disk, where the coordinator knows it. */
function disk(store) {
  if (store.disk_free_bytes === null || store.disk_free_bytes === undefined) return [];
  const free = bytes(store.disk_free_bytes);
  if (store.is_full) return [["disk", html`<span class="error-text">full: changes are refused until there is free space (${free} free)</span>`]];
  return [["free disk space", store.is_disk_low ? html`<span class="error-text">${free}: a full disk stops every change</span>` : free]];
}

/** Who leads the store, where coordinators share one. */
function leadership({ role, leader }) {
  if (!leader) return [];
  return [["role", role], ["leader", leader.is_here ? "this coordinator" : leader.name], ["leader at", html`<code>${leader.address}</code>`],
    ["leads since", html`<${Time} at=${leader.since_ms} />`], ["epoch", html`<span class="number">${whole(leader.epoch)}</span>`], ["changes of leader", html`<span class="number">${whole(leader.epoch - 1)}</span>`]];
}

/** What the checks say about times is for machines: in words that people read. */
const ago = (detail) => (detail || "").replace(/(\d+) ms ago/, (_all, ms) => `${duration(Number(ms))} ago`);

const GROUPS = [
  ["Network", /^(host|port|insecure|require_token|tls_|zmq_)/], ["Logs", /^log_/], ["Store", /^(store|postgres_|inbox_)/], ["Several coordinators", /^(replica_|advertise|leader_)/],
  ["Tasks", /^(job_|unclaimed_|stuck_)/], ["Workers and shards", /^(strategy|scoring|degraded_|unhealthy_|shard_)/], ["Outgoing requests", /^outbound_/], ["History", /_keep_ms$/], ["Limits", /^max_/],
];

/** The settings by what they are about; those that no group takes come last. */
function grouped(settings) {
  const groups = GROUPS.map(([title, names]) => ({ title, items: settings.filter((one) => names.test(one.name)) }));
  const taken = new Set(groups.flatMap((one) => one.items));
  return [...groups, { title: "Other", items: settings.filter((one) => !taken.has(one)) }].filter((one) => one.items.length);
}

/** A description: what stands between backticks is code. */
const marked = (text) => text.split("`").map((part, at) => (at % 2 ? html`<code>${part}</code>` : part));

function show({ name, value }) {
  if (value === null || value === "") return "–";
  if (name.endsWith("port")) return String(value);
  if (name.endsWith("_ms")) return duration(value);
  if (name.endsWith("_bytes")) return bytes(value);
  return typeof value === "number" ? whole(value) === String(value) || value > 999 ? whole(value) : String(value) : String(value);
}
