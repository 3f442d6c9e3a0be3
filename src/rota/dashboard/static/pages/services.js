// The list of services, and whether all their shards are owned.
import { html } from "../lib.js";
import { whole } from "../format.js";
import { useResource } from "../resource.js";
import { segment } from "../router.js";
import { Badge, Bar, Empty, Header, Panel, Problem, opens } from "../ui.js";

export const MOVES = ["shards-", "member-", "service-"];

export default function Services() {
  const services = useResource("/api/services", { on: MOVES, every: 3000 });
  const items = services.data?.items || [];
  return html`<${Header} title="Services" />
    <${Panel}>${items.length ? html`<${Table} items=${items} />` : services.data ? html`<${Empty}>No worker has asked for shards yet.<//>` : html`<${Problem} of=${services} />`}
    ${services.data && services.problem && html`<${Problem} of=${services} />`}<//>`;
}

const Table = ({ items }) => html`<div class="scroll"><table>
  <thead><tr><th>service</th><th>state</th><th class="hide-narrow">owned</th><th class="right">shards</th><th class="right hide-narrow">unowned</th><th class="right hide-narrow">moving</th><th class="right">members</th><th class="right hide-narrow">generation</th></tr></thead>
  <tbody>${items.map((one) => html`<tr key=${one.name} ...${opens(`/services/${segment(one.name)}`)}>
    <td><a href=${`/services/${segment(one.name)}`}>${one.name}</a> ${one.pinned && html`<span class="chip">pinned</span>`}</td>
    <td class="tight"><${Badge} state=${one.unowned ? "unhealthy" : one.moving ? "degraded" : "healthy"}>${one.unowned ? `${whole(one.unowned)} unowned` : one.moving ? `${whole(one.moving)} moving` : "all owned"}<//></td>
    <td class="hide-narrow grow"><${Bar} kind="wide" share=${(one.shard_count - one.unowned) / Math.max(1, one.shard_count)} state=${one.unowned ? "degraded" : "healthy"} label=${`owned shards of ${one.name}`} /></td>
    <td class="right number">${whole(one.shard_count)}</td>
    <td class=${`right hide-narrow number ${one.unowned ? "error-text" : "faint"}`}>${whole(one.unowned)}</td>
    <td class=${`right hide-narrow number ${one.moving ? "" : "faint"}`}>${whole(one.moving)}</td>
    <td class="right number">${whole(one.member_count)}</td><td class="right number hide-narrow">${whole(one.generation)}</td></tr>`)}</tbody></table></div>`;
