// One workflow: its graph, its versions, and the form that starts a run.
import { withQuery } from "../api.js";
import { Graph } from "../graph.js";
import { awaited, does } from "../graph_shape.js";
import { duration } from "../format.js";
import { html } from "../lib.js";
import { useResource } from "../resource.js";
import { here, link, segment, setQuery } from "../router.js";
import { may } from "../session.js";
import { Copy, Empty, Facts, Header, Panel, Problem, Tabs, Time } from "../ui.js";
import { Table as RunTable } from "./runs.js";
import { StartForm } from "./workflow_form.js";
import { Difference, Source } from "./source_text.js";
import { yamlOf } from "./workflow_text.js";

export default function Workflow({ params, query }) {
  const path = `/api/workflows/${segment(params.name)}`;
  const newest = useResource(path, { on: ["workflow-"], every: 15_000 });
  const wanted = Number(query.version) || newest.data?.version;
  const isNewest = wanted === newest.data?.version;
  const chosen = useResource(newest.data && !isNewest ? `${path}/versions/${wanted}` : null);
  const one = isNewest ? newest.data : chosen.data;
  if (!newest.data) return html`<${Header} title=${params.name} /><${Problem} of=${newest} />`;
  const { code, definition } = one || newest.data;
  const tabs = ["runs", ...(may("submit") ? ["start"] : []), ...(code ? [] : ["definition"]), "versions"];
  const tab = tabs.includes(query.tab) ? query.tab : "runs";
  return html`<${Header} title=${params.name} sub=${(newest.data.code || newest.data.definition).description}>
      <label class="field-inline"><span class="soft">version </span><select aria-label="version" value=${wanted} onChange=${(event) => setQuery({ version: Number(event.target.value) === newest.data.version ? "" : event.target.value }, { replace: true })}>
        ${newest.data.versions.map((version) => html`<option key=${version.version} value=${version.version}>${version.version}${version.version === newest.data.version ? ", newest" : ""}</option>`)}</select></label>
      ${may("submit") && html`<a class="button primary" href=${link(here(), { ...query, tab: "start" })}>start a run</a>`}<//>
    ${code ? html`<${Panel} title="Function">${one ? html`<div class="body"><${Facts} items=${codeFacts(code)} /></div><${Source} key=${wanted} code=${code} label=${`source of ${params.name}, version ${wanted}`} />` : html`<${Problem} of=${chosen} />`}<//>` : html`<${Panel} title="Graph">${one ? html`<${Graph} definition=${definition} chosen=${query.node} onChoose=${(node) => setQuery({ node }, { replace: true })} label=${`graph of ${params.name}`} />` : html`<${Problem} of=${chosen} />`}<//>`}
    ${one && query.node && definition?.nodes[query.node] && html`<${NodeFacts} id=${query.node} node=${definition.nodes[query.node]} />`}
    <${Tabs} label="about the workflow" items=${tabs.map((name) => ({ label: name, href: link(here(), { ...query, tab: name, cursor: "" }), isOn: tab === name }))} />
    <${Panel}>
      ${tab === "runs" && html`<${Runs} name=${params.name} />`}
      ${tab === "start" && one && html`<div class="body"><${StartForm} key=${wanted} name=${params.name} version=${wanted} schema=${definition?.input} /></div>`}
      ${tab === "definition" && one && html`<${Text} definition=${definition} />`}
      ${tab === "versions" && html`<${Versions} path=${path} newest=${newest.data} wanted=${wanted} against=${Number(query.against) || 0} />`}
    <//>`;
}

const codeFacts = (code) => [
  ["label", code.label], ["queue", code.queue || "default"], ["priority", code.priority || null], ["requires", code.requires?.join(", ")],
  ["attempts", `${code.max_attempts ?? 3} without progress`], ["upgrade", code.upgrade === "pinned" ? "pinned: only workers with this version continue its runs" : "replay: workers with any version continue its runs"],
  ["time limit", code.timeout_ms ? duration(code.timeout_ms) : null],
];

const textOf = (version) => (version.code ? version.code.source : yamlOf(version.definition));

const NodeFacts = ({ id, node }) => html`<${Panel} title=${`Node ${id}`}><div class="body"><${Facts} items=${[["does", does(node)], ["waits for", awaited(id, node)], ["queue", node.task ? node.queue || "default" : null]]} /></div>
  <div class="text">${yamlOf(node).split("\n").map((line, at) => html`<div key=${at}>${line}</div>`)}</div><//>`;

function Runs({ name }) {
  const runs = useResource(withQuery("/api/runs", { workflow: name, limit: 15 }), { on: ["run-"], every: 5000 });
  if (!runs.data) return html`<${Problem} of=${runs} />`;
  if (!runs.data.items.length) return html`<${Empty}>It has not been run yet.<//>`;
  return html`<${RunTable} items=${runs.data.items} isOne=${true} /><p class="pager"><a href=${link("/runs", { workflow: name })}>all runs</a></p>`;
}

function Text({ definition }) {
  const text = yamlOf(definition);
  return html`<div class="json-like"><div class="right"><${Copy} text=${text} label="copy the definition" /></div><div class="text" tabindex="0" role="group" aria-label="definition as YAML">${text.split("\n").map((line, at) => html`<div key=${at}>${line}</div>`)}</div></div>`;
}

function Versions({ path, newest, wanted, against }) {
  const other = against || (wanted > 1 ? wanted - 1 : 0);
  const left = useResource(other ? `${path}/versions/${other}` : null), right = useResource(`${path}/versions/${wanted}`);
  return html`<div class="scroll"><table><thead><tr><th>version</th><th>deployed</th><th class="hide-narrow">hash</th><th>compare</th></tr></thead><tbody>
    ${newest.versions.map((one) => html`<tr key=${one.version}><td><a href=${link(here(), { tab: "versions", version: one.version === newest.version ? "" : one.version })} aria-current=${one.version === wanted ? "true" : undefined}>${one.version}${one.version === wanted ? " (shown)" : ""}</a></td><td><${Time} at=${one.created_at_ms} /></td><td class="hide-narrow"><code class="faint">${one.hash.slice(0, 16)}</code></td>
      <td>${one.version === wanted ? "" : html`<a href=${link(here(), { tab: "versions", version: wanted === newest.version ? "" : wanted, against: one.version })}>${one.version} → ${wanted}</a>`}</td></tr>`)}
  </tbody></table></div>
  ${other > 0 && html`<h3 class="part">What changed from ${other} to ${wanted}</h3>${left.data && right.data ? html`<${Difference} before=${textOf(left.data)} after=${textOf(right.data)} />` : html`<${Problem} of=${left.problem ? left : right} />`}`}`;
}
