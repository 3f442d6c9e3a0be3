// The tenants of a queue: their weights, what they had of the queue lately, and what they wait for.
import { plural, short, whole } from "../format.js";
import { html } from "../lib.js";
import { useResource } from "../resource.js";
import { segment } from "../router.js";
import { Bar, Count, Panel } from "../ui.js";

const percent = (share) => `${Math.round(share * 100)} %`;

export function Tenants({ queue }) {
  const tenants = useResource(`/api/queues/${segment(queue.name)}/tenants`, { on: ["task-", "queue-"], every: 2000 });
  const items = tenants.data?.items || [];
  if (!items.length) return null;
  const waiting = items.filter((one) => one.waiting);
  const weights = waiting.reduce((total, one) => total + one.weight, 0);
  const isAll = tenants.data.total <= items.length;
  return html`<${Panel} title=${`${queue.name}: tenants`} tools=${html`<span class="soft">${isAll ? plural(items.length, "tenant") : `${whole(items.length)} of ${whole(tenants.data.total)} tenants`}</span>`}>
    <div class="scroll"><table class="cards tenants">
      <thead><tr><th>tenant</th><th class="right">weight</th><th>share of ${queue.fairness === "time" ? "time" : "starts"}</th><th class="right">by weight</th><th class="right">queued</th><th class="right">running</th></tr></thead>
      <tbody>${items.map((one) => html`<tr key=${one.key}>
        <td class="clip"><b>${one.key}</b></td>
        <td class="right number" data-label="weight">${one.weight}</td>
        <td class="use">${one.share === null ? html`<span class="faint">–</span>` : html`<${Bar} share=${one.share} state="running" label=${`share of ${one.key}`} /> <span class="number">${percent(one.share)}</span>`}</td>
        <td class="right number soft" data-label="by weight">${one.waiting && isAll ? percent(one.weight / weights) : "–"}</td>
        <td class="right" data-label="queued"><${Count} of=${one.waiting} /></td><td class="right number" data-label="running">${short(one.running)}</td></tr>`)}</tbody></table></div>
    <p class="soft body">Recent shares; a minute ago counts half. By weight: the share that each tenant with waiting tasks gets now.</p><//>`;
}
