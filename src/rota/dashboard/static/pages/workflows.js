// The list of workflows, with the states of their runs.
import { html } from "../lib.js";
import { useResource } from "../resource.js";
import { link, place, segment } from "../router.js";
import { tone } from "../states.js";
import { Badge, Empty, Field, Header, Pager, Panel, Problem, Time, opens } from "../ui.js";
import { plural } from "../format.js";
import { withQuery } from "../api.js";

const LATELY = 300; // runs, the newest of all workflows, that the bars are made of

export default function Workflows({ query }) {
  const workflows = useResource(withQuery("/api/workflows", { cursor: query.cursor, limit: 200 }), { on: ["workflow-"], every: 10_000 });
  const runs = useResource(`/api/runs?limit=${LATELY}`, { on: ["run-"], every: 10_000 });
  const wanted = (place.value.query.name || "").toLowerCase();
  const items = (workflows.data?.items || []).filter((one) => one.name.toLowerCase().includes(wanted));
  const lately = new Map();
  for (const run of runs.data?.items || []) {
    if (!lately.has(run.workflow)) lately.set(run.workflow, []);
    lately.get(run.workflow).push(run);
  }
  return html`<${Header} title="Workflows" />
    <div class="filters" role="search"><${Field} name="name" label="name" data-search /></div>
    <${Panel}>${items.length ? html`<${Table} items=${items} lately=${lately} />`
      : workflows.data ? html`<${Empty}>${wanted ? "No workflow has this name." : html`No workflow yet. Put one with <code>rota workflows put FILE</code>, or run one with <code>rota run FILE</code>.`}<//>` : html`<${Problem} of=${workflows} />`}
      <${Pager} next=${workflows.data?.next_cursor} shown=${plural(items.length, "workflow")} /><//>`;
}

const Table = ({ items, lately }) => html`<div class="scroll"><table>
  <thead><tr><th>name</th><th>newest run</th><th class="hide-narrow">lately</th><th class="right">version</th><th class="right hide-narrow">deployed</th></tr></thead>
  <tbody>${items.map((one) => {
    const runs = lately.get(one.name) || [];
    return html`<tr key=${one.name} ...${opens(`/workflows/${segment(one.name)}`)}>
      <td><a href=${`/workflows/${segment(one.name)}`}>${one.name}</a></td>
      <td class="tight">${runs[0] ? html`<a href=${`/runs/${runs[0].id}`}><${Badge} state=${runs[0].state} /></a> <span class="faint"><${Time} at=${runs[0].created_at_ms} /></span>` : html`<span class="faint">none lately</span>`}</td>
      <td class="hide-narrow tight"><${Bars} runs=${runs} name=${one.name} /></td>
      <td class="right number tight">${one.version}</td>
      <td class="right tight hide-narrow"><${Time} at=${one.created_at_ms} /></td></tr>`;
  })}</tbody></table></div>`;

function Bars({ runs, name }) {
  if (!runs.length) return html`<span class="faint">–</span>`;
  const counts = {};
  for (const run of runs) counts[run.state] = (counts[run.state] || 0) + 1;
  const words = Object.entries(counts).map(([state, count]) => `${count} ${state}`).join(", ");
  return html`<a href=${link("/runs", { workflow: name })} title=${words} aria-label=${words}><span class="runs-bar">${Object.entries(counts).map(([state, count]) => html`<i key=${state} data-tone=${tone(state)} style=${{ flexGrow: count }}></i>`)}</span> <span class="number soft">${runs.length}</span></a>`;
}
