// The list of runs, live, newest first, with its filters in the address.
import { withQuery } from "../api.js";
import { plural, whole } from "../format.js";
import { html, useRef } from "../lib.js";
import { useResource } from "../resource.js";
import { go, link, segment, setQuery } from "../router.js";
import { may } from "../session.js";
import { RUN_STATES } from "../states.js";
import { Badge, Duration, Empty, Field, Header, Pager, Panel, Problem, Tabs, Time, opens } from "../ui.js";

const PAGE = 50;

export default function Runs({ query, overview }) {
  const filter = { workflow: query.workflow, state: query.state };
  const runs = useResource(withQuery("/api/runs", { ...filter, cursor: query.cursor, limit: PAGE }), { on: ["run-"], every: 5000 });
  const workflows = useResource("/api/workflows?limit=1000", { every: 60_000 });
  const items = runs.data?.items || [];
  const search = (event) => {
    event.preventDefault();
    const text = new FormData(event.target).get("id").trim();
    if (/^[0-9a-f]{16}$/.test(text)) go(`/runs/${text}`);
    else setQuery({ workflow: text, cursor: "" });
  };
  return html`<${Header} title="Runs">${may("submit") && html`<a class="button" href="/workflows">start a run …</a>`}<//>
    <${Tabs} label="states" items=${[{ label: "all", href: link("/runs", { workflow: query.workflow }), isOn: !query.state }, ...RUN_STATES.map((state) => ({ label: state.replaceAll("_", " "), state, count: query.workflow ? undefined : overview?.runs[state] ?? 0, href: link("/runs", { workflow: query.workflow, state }), isOn: query.state === state }))]} />
    <div class="filters" role="search">
      <form onSubmit=${search}><label class="field"><span>search</span><input data-search name="id" type="search" placeholder="run id or workflow" spellcheck=${false} autocomplete="off" /></label></form>
      <${Field} name="workflow" label="workflow" options=${(workflows.data?.items || []).map((one) => one.name)} />
      ${(query.workflow || query.state) && html`<a class="button quiet" href="/runs">clear</a>`}
    </div>
    <${Panel}>
      ${items.length ? html`<${Table} items=${items} />` : runs.data ? html`<${Empty}>${query.workflow || query.state ? "No run matches." : html`No workflow has been run yet. Run one with <code>rota run FILE</code>.`}<//>` : html`<${Problem} of=${runs} />`}
      ${runs.data && runs.problem && html`<${Problem} of=${runs} />`}
      <${Pager} next=${runs.data?.next_cursor} shown=${plural(items.length, "run")} />
    <//>`;
}

const OPEN = ["running", "paused"];

/** What the open ones of these runs are at, by run; what was known stays until more is known. */
function useActivity(runs) {
  const open = runs.filter((one) => OPEN.includes(one.state)).map((one) => one.id).sort();
  const found = useResource(open.length ? withQuery("/api/runs/activity", { run: open }) : null, { on: ["task-", "run-"], every: 3000 });
  const known = useRef(new Map());
  for (const one of found.data?.items || []) known.current.set(one.run_id, one);
  return known.current;
}

const ORDER = ["running", "queued", "scheduled"];
/** Where a run only waits for its tasks, their badges say more than the line. */
const isTasks = (text) => /^(task|tasks|its function|[\d,]+ ')/.test(text);

function Activity({ found, state }) {
  if (!found) return null;
  const { tasks, text, until_ms: until } = found;
  const waits = text && html`<span class="soft">${state === "paused" ? "paused; " : ""}${text}${until !== null && html` · ${text.endsWith("sleeping") ? "wakes" : "due"} <${Time} at=${until} />`}</span>`;
  if (waits && !isTasks(text)) return waits;
  if (!tasks.length) return html`<span class="soft">${state === "paused" ? "paused" : "about to go on"}</span>`;
  const sorted = [...tasks].sort((left, right) => ORDER.indexOf(left.state) - ORDER.indexOf(right.state));
  return html`<span class="activity">${sorted.slice(0, 4).map((one) => html`<${Badge} key=${one.name + one.queue + one.state} state=${one.state}>${one.name}${one.count > 1 ? ` × ${whole(one.count)}` : ""} ${one.state === "running" ? "" : one.state}<//>`)}${sorted.length > 4 ? html`<span class="faint">and more</span>` : null}</span>`;
}

export function Table({ items, isOne }) {
  const activity = useActivity(items);
  return html`<div class="scroll"><table>
  <thead><tr><th class=${isOne ? "" : "hide-narrow"}>run</th>${!isOne && html`<th>workflow</th>`}<th>state</th><th class="hide-narrow">waiting for, or result</th><th class="right">started</th><th class="right hide-narrow">took</th></tr></thead>
  <tbody>${items.map((run) => html`<tr key=${run.id} ...${opens(`/runs/${segment(run.id)}`)}>
    <td class=${isOne ? "tight" : "tight hide-narrow"}><a class="mono" href=${`/runs/${segment(run.id)}`}>${run.id}</a></td>
    ${!isOne && html`<td class="nowrap"><a href=${`/workflows/${segment(run.workflow)}`}>${run.workflow}</a> <span class="faint hide-narrow">v${run.version}</span>${run.parent_run_id && html`<span class="sub">in <a href=${`/runs/${segment(run.parent_run_id)}`}>${run.parent_workflow || run.parent_run_id}</a></span>`}</td>`}
    <td class="tight"><${Badge} state=${run.state} /></td>
    <td class="hide-narrow grow">${run.error ? html`<span class="error-text">${run.error.type}: ${run.error.message}</span>` : OPEN.includes(run.state) ? html`<${Activity} found=${activity.get(run.id)} state=${run.state} />` : run.output !== null ? html`<code class="faint">${JSON.stringify(run.output).slice(0, 160)}</code>` : run.key ? html`<span class="faint">key ${run.key}</span>` : ""}</td>
    <td class="right tight"><a href=${`/runs/${segment(run.id)}`} tabindex="-1"><${Time} at=${run.created_at_ms} /></a></td>
    <td class="right tight hide-narrow"><${Duration} from=${run.created_at_ms} to=${run.finished_at_ms} /></td>
  </tr>`)}</tbody></table></div>`;
}
