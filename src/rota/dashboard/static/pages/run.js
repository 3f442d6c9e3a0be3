// One run: its graph, its state, and the reasons for its path.
import { html, useEffect, useMemo, useState } from "../lib.js";
import { plural } from "../format.js";
import { Graph } from "../graph.js";
import { Json } from "../json.js";
import { useResource } from "../resource.js";
import { here, link, segment, setQuery } from "../router.js";
import { tone } from "../states.js";
import { PER_NODE, Timeline } from "../timeline.js";
import { Badge, Duration, Empty, Header, Panel, Problem, Tabs, Time } from "../ui.js";
import { Actions } from "./run_actions.js";
import { Asks, Stopped } from "./run_asks.js";
import { Diverged, isDiverged } from "./run_diverged.js";
import { FunctionGraph, FunctionSource, Waits, factsOf, useWaits } from "./run_function.js";
import { Journal } from "./run_journal.js";
import { NodePanel } from "./run_node.js";
import { Operations, Published } from "./run_operations.js";
import { Scopes } from "./run_scopes.js";
import { Slider, usePast } from "./run_slider.js";

const TABS = ["timeline", "journal", "data", "artifacts"];
const FUNCTION_TABS = ["timeline", "operations", "journal", "published", "data", "artifacts"];
const isOpenState = (state) => state === "running" || state === "paused";

/** All that a picture of a run needs; a run that has ended is asked for once. */
function useRun(id) {
  const path = `/api/runs/${segment(id)}`;
  const [isLive, setLive] = useState(true);
  const options = isLive ? { on: ["run-", "task-"], every: 3000 } : {};
  const run = useResource(path, isLive ? { on: ["run-"], every: 3000 } : { on: ["run-"] });
  const graph = useResource(`${path}/graph`, options);
  const workflow = useResource(run.data ? `/api/workflows/${segment(run.data.workflow)}/versions/${run.data.version}` : null);
  const isOpen = !run.data || isOpenState(run.data.state) || (graph.data && isOpenState(graph.data.state));
  useEffect(() => setLive(Boolean(isOpen)), [isOpen]);
  const reload = () => { run.reload(); graph.reload(); };
  return { run, graph, workflow, definition: workflow.data?.definition, code: workflow.data?.code, isLive: Boolean(isOpen), reload };
}

/** What panels and journals look nodes up in: the definition, or what a function has done so far. */
const useDrawn = (definition, code, graph) => useMemo(() => definition || (code && graph ? { nodes: Object.fromEntries(graph.nodes.map((one) => [one.id, one])), transitions: [] } : null), [definition, code, graph]);

export default function Run({ params, query }) {
  const { run, graph, workflow, definition, code, isLive, reload } = useRun(params.id);
  const waits = useWaits(code ? run.data : null, graph.data);
  const [line, setLine] = useState(null);
  const at = Number(query.at) || 0;
  const past = usePast(params.id, at);
  const tokens = useResource(graph.data ? `/api/runs/${segment(params.id)}/tokens?per_node=${PER_NODE}&limit=400` : null, isLive ? { on: ["run-", "task-"], every: 3000 } : {});
  const drawn = useDrawn(definition, code, graph.data);
  if (!run.data) return html`<${Header} title="Run" /><${Problem} of=${run} />`;
  const one = run.data, known = tokens.data?.items || [];
  const step = (number) => setQuery({ at: number || "" }, { replace: true });
  const choose = (node) => setQuery({ node }, { replace: true });
  const tabs = code ? FUNCTION_TABS : TABS;
  const tab = tabs.includes(query.tab) ? query.tab : "timeline";
  const shown = at && past ? past.graph : graph.data;
  const label = `graph of ${one.workflow}, ${at ? `as it was after entry ${at}` : one.state}`;
  const show = (number) => { setLine(number); document.querySelector(".beside .source")?.scrollIntoView({ block: "nearest" }); };
  return html`<${Header} title=${html`${one.workflow} <span class="faint mono">${one.id}</span>`} sub=${html`<${About} run=${one} />`}>
      ${!isDiverged(one) && html`<${Actions} run=${one} definition=${definition} code=${code} chosen=${query.node} reload=${reload} />`}<//>
    ${run.problem && html`<${Problem} of=${run} />`}
    ${graph.data && definition && html`<${Asks} run=${one} definition=${definition} graph=${graph.data} reload=${reload} onChoose=${choose} />`}
    ${code && (isDiverged(one) ? html`<${Diverged} run=${one} code=${code} reload=${reload} />` : html`<${Stopped} run=${one} onChoose=${choose} />`)}
    ${code && graph.data && !isDiverged(one) && html`<${Waits} run=${one} graph=${graph.data} waits=${waits} reload=${reload} onLine=${show} />`}
    <div class=${code ? "beside" : undefined}>
    <section class=${`panel ${at ? "is-past" : ""}`} aria-label="graph">
      <header><h2>Graph</h2><${Progress} graph=${shown} /></header>
      ${code && graph.data ? html`<${FunctionGraph} graph=${graph.data} shown=${shown} tokens=${known} chosen=${query.node} onChoose=${(node) => { choose(node); setLine(graph.data.nodes.find((other) => other.id === node)?.line ?? null); }} label=${label} />`
        : definition ? html`<${Graph} definition=${definition} graph=${shown} chosen=${query.node} onChoose=${choose} label=${label} />`
        : html`<${Problem} of=${graph.problem ? graph : workflow} />`}
      ${graph.data && html`<${Slider} last=${graph.data.last_number} at=${at} past=${past} onStep=${step} />`}
    </section>
    ${code && html`<${Panel} title="Source"><${FunctionSource} run=${one} code=${code} waits=${waits.items} line=${line} /><//>`}
    </div>
    ${definition && html`<${Scopes} run=${one} definition=${definition} reload=${reload} />`}
    ${query.node && drawn && graph.data && html`<${NodePanel} run=${one} definition=${drawn} facts=${code && factsOf} graph=${graph.data} id=${query.node} isPast=${at > 0} isLive=${isLive} SubRun=${SubRun} onClose=${() => choose("")} />`}
    <${Tabs} label="about the run" items=${tabs.map((name) => ({ label: name, href: link(here(), { ...query, tab: name, after: "" }), isOn: tab === name }))} />
    <${Panel}>
      ${tab === "timeline" && (graph.data && tokens.data ? html`<${Timeline} run=${one} graph=${graph.data} tokens=${known} onChoose=${choose} />` : html`<${Problem} of=${tokens} />`)}
      ${tab === "operations" && html`<${Operations} run=${one} isLive=${isLive} onLine=${show} />`}
      ${tab === "published" && html`<${Published} run=${one} graph=${graph.data} isLive=${isLive} />`}
      ${tab === "journal" && drawn && html`<${Journal} run=${one} definition=${drawn} last=${graph.data?.last_number || 0} at=${at} isLive=${isLive} onStep=${(number) => { step(number); window.scrollTo({ top: 0 }); }} />`}
      ${tab === "data" && html`<${Data} run=${one} />`}
      ${tab === "artifacts" && html`<${Artifacts} id=${one.id} isLive=${isLive} />`}
    <//>`;
}

const About = ({ run }) => html`<span class="badge big" data-tone=${tone(run.state)}>${run.state.replaceAll("_", " ")}</span>${" "}
  <a href=${link(`/workflows/${segment(run.workflow)}`, { version: run.version })}>version ${run.version}</a>, started <${Time} at=${run.created_at_ms} />, ${run.finished_at_ms === null ? "under way for" : "took"} <${Duration} from=${run.created_at_ms} to=${run.finished_at_ms} />
  ${run.parent_run_id && html`, child of <a href=${`/runs/${segment(run.parent_run_id)}`}>${run.parent_workflow ? html`${run.parent_workflow} <span class="mono">${run.parent_run_id}</span>` : run.parent_run_id}</a>`}${run.forked_from && html`, forked from <a href=${`/runs/${segment(run.forked_from)}`}>${run.forked_from}</a>`}${run.key && html`, key <code>${run.key}</code>`}`;

function Progress({ graph }) {
  if (!graph) return null;
  const all = {};
  for (const node of graph.nodes) for (const [state, count] of Object.entries(node.tokens)) all[state] = (all[state] || 0) + count;
  return html`<span class="progress">${Object.entries(all).map(([state, count]) => html`<${Badge} key=${state} state=${state}>${count.toLocaleString("en-US")} ${state.replaceAll("_", " ")}<//>`)}</span>`;
}

/** A run inside another one's page. */
function SubRun({ id }) {
  const { run, graph, definition, code, isLive } = useRun(id);
  const drawn = useDrawn(definition, code, graph.data);
  const [chosen, setChosen] = useState("");
  return html`<section class="subrun" aria-label=${`child run ${id}`}>
    <header>${run.data && html`<${Badge} state=${run.data.state} /><b>${run.data.workflow}</b>`}<a href=${`/runs/${segment(id)}`}>${id}</a>${run.data?.error && html`<span class="error-text">${run.data.error.message}</span>`}</header>
    ${graph.data && code ? html`<${FunctionGraph} graph=${graph.data} shown=${graph.data} chosen=${chosen} onChoose=${setChosen} label=${`graph of child run ${id}`} />`
      : graph.data && definition ? html`<${Graph} definition=${definition} graph=${graph.data} chosen=${chosen} onChoose=${setChosen} label=${`graph of child run ${id}`} />` : html`<${Problem} of=${run.problem ? run : graph} />`}
    ${chosen && drawn && graph.data && html`<${NodePanel} run=${run.data} definition=${drawn} facts=${code && factsOf} graph=${graph.data} id=${chosen} isLive=${isLive} SubRun=${SubRun} onClose=${() => setChosen("")} />`}
  </section>`;
}

const Data = ({ run }) => html`<div>
  ${run.output !== null && html`<h3 class="part">output</h3><${Json} value=${run.output} label="output" />`}
  <h3 class="part">input</h3><${Json} value=${run.context?.input} label="input" />
  <h3 class="part">state</h3><${Json} value=${run.context?.state} label="state" />
  ${run.error && html`<h3 class="part">error</h3><${Json} value=${run.error} label="error" />`}
</div>`;

function Artifacts({ id, isLive }) {
  const found = useResource(`/api/runs/${id}/artifacts`, isLive ? { every: 5000 } : {});
  if (!found.data) return html`<${Problem} of=${found} />`;
  if (!found.data.items.length) return html`<${Empty}>No artifacts.<//>`;
  return html`<table><thead><tr><th>name</th><th>kind</th><th class="right">bytes</th><th>made</th></tr></thead><tbody>
    ${found.data.items.map((one) => html`<tr key=${one.name}><td><a download href=${`/api/runs/${id}/artifacts/${segment(one.name)}`}>${one.name}</a></td><td>${one.media_type}</td><td class="right number">${plural(one.size, "byte")}</td><td><${Time} at=${one.created_at_ms} /></td></tr>`)}
  </tbody></table>`;
}
