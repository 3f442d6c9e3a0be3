// The list of tasks: states with counts, filters in the address, and changes of many tasks.
import { post, withQuery } from "../api.js";
import { act, confirm } from "../dialog.js";
import { plural } from "../format.js";
import { html, useEffect, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { go, link, place, setQuery } from "../router.js";
import { may } from "../session.js";
import { TASK_STATES } from "../states.js";
import { Badge, Bar, Button, Duration, Empty, Field, Header, Pager, Panel, Problem, Tabs, Time, opens } from "../ui.js";
import { SubmitForm } from "./submit_form.js";

const PAGE = 50;
const MOST_ARGUMENTS = 80; // characters of the arguments in a row

export default function Tasks({ query, overview }) {
  const filter = { state: query.state, queue: query.queue, name: query.name, label: query.label };
  const path = withQuery("/api/tasks", { ...filter, cursor: query.cursor, limit: PAGE });
  const tasks = useResource(path, { on: ["task-"], every: 5000 });
  const backlog = useResource("/api/backlog", { on: ["task-", "queue-", "worker-"], every: 5000 });
  const queues = useResource("/api/queues", { every: 30_000 });
  const [chosen, setChosen] = useState(new Set());
  useEffect(() => setChosen(new Set()), [path]);
  const items = tasks.data?.items || [];
  const choose = (id, isOn) => { const next = new Set(chosen); if (isOn) next.add(id); else next.delete(id); setChosen(next); };
  const [isSubmitting, setSubmitting] = useState(false);
  const names = [...new Set((backlog.data?.items || []).map((one) => one.name))];
  return html`<${Header} title="Tasks"><${Bulk} filter=${filter} chosen=${chosen} done=${() => { setChosen(new Set()); tasks.reload(); }} />${may("submit") && html`<${Button} onClick=${() => setSubmitting(true)}>submit a task …<//>`}<//>
    <${Tabs} label="states" items=${tabs(query, overview)} />
    <${Filters} queues=${queues.data?.items || []} names=${names} />
    <${Why} filter=${filter} backlog=${backlog.data?.items || []} />
    <${Panel}>
      ${items.length ? html`<${Table} items=${items} backlog=${backlog.data?.items || []} chosen=${chosen} choose=${choose} chooseAll=${(isOn) => setChosen(new Set(isOn ? items.map((one) => one.id) : []))} />`
        : tasks.data ? html`<${Empty}>${hasFilter(filter) ? "No task matches." : "No task has been submitted yet."}<//>` : html`<${Problem} of=${tasks} />`}
      ${tasks.data && tasks.problem && html`<${Problem} of=${tasks} />`}
      <${Pager} next=${tasks.data?.next_cursor} shown=${plural(items.length, "task")} />
    <//>
    ${isSubmitting && html`<${SubmitForm} queues=${(queues.data?.items || []).map((one) => one.name)} names=${names} close=${() => setSubmitting(false)} />`}`;
}

const hasFilter = (filter) => Object.values(filter).some(Boolean);

function tabs(query, overview) {
  const rest = { queue: query.queue, name: query.name, label: query.label };
  const all = { label: "all", href: link("/tasks", rest), isOn: !query.state };
  return [all, ...TASK_STATES.map((state) => ({ label: state, state, count: hasFilter(rest) ? undefined : overview?.tasks[state] ?? undefined, href: link("/tasks", { ...rest, state }), isOn: query.state === state }))];
}

function Filters({ queues, names }) {
  const search = (event) => {
    event.preventDefault();
    const text = new FormData(event.target).get("search").trim();
    if (/^[0-9a-f]{16}$/.test(text)) go(`/tasks/${text}`);
    else setQuery({ ...readSearch(text), cursor: "" });
  };
  const { query } = place.value;
  return html`<div class="filters" role="search">
    <form onSubmit=${search}><label class="field"><span>search</span><input data-search name="search" type="search" class="wide" placeholder="id, name, queue:… label:k=v state:…" spellcheck=${false} autocomplete="off" /></label></form>
    <${Field} name="queue" label="queue" options=${queues.map((one) => one.name)} />
    <${Field} name="name" label="name" options=${names} />
    <${Field} name="label" label="label" placeholder="key=value" />
    ${hasFilter({ ...query, cursor: "" }) && html`<a class="button quiet" href="/tasks">clear</a>`}
  </div>`;
}

/** `mail queue:slow label:team=a state:failed` as filters. */
export function readSearch(text) {
  const found = {};
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const [, key, value] = /^(queue|name|label|state):(.+)$/.exec(word) || [null, "name", word];
    found[key] = value;
  }
  return found;
}

/** What keeps the tasks of this list waiting, said once above it. */
function Why({ filter, backlog }) {
  if (filter.state && filter.state !== "queued") return null;
  const stuck = backlog.filter((one) => one.queued && one.why.is_stuck && (!filter.queue || one.queue === filter.queue) && (!filter.name || one.name === filter.name));
  if (!stuck.length) return null;
  return html`<div class="why" data-tone="red"><div><b>${plural(stuck.reduce((total, one) => total + one.queued, 0), "task")} cannot start</b>
    <ul>${stuck.slice(0, 5).map((one) => html`<li key=${one.queue + one.name + one.requires}>${plural(one.queued, "task")} ${one.name} in ${one.queue}: ${one.why.text}</li>`)}</ul></div></div>`;
}

const TITLES = { cancel: "Cancel", retry: "Retry", acknowledge: "Acknowledge" };
const SAID = { cancel: "cancelled", retry: "queued again", acknowledge: "acknowledged" };

function Bulk({ filter, chosen, done }) {
  if (!may("submit")) return null;
  const change = (verb) => async () => {
    const selection = chosen.size ? { ids: [...chosen] } : Object.fromEntries(Object.entries(filter).filter(([, value]) => value));
    const counted = await act(() => post(`/api/tasks/${verb}`, { ...selection, dry_run: true }));
    if (!counted) return;
    const what = chosen.size ? "that you chose" : hasFilter(filter) ? "that match the filter" : "there are";
    const text = counted.count ? html`This will ${verb} <b>${plural(counted.count, "task")}</b> ${what}.` : html`No task ${what} can be changed in this way.`;
    const isSure = await confirm({ title: `${TITLES[verb]} ${plural(counted.count, "task")}?`, text, label: `${verb} ${plural(counted.count, "task")}`, kind: verb === "cancel" ? "danger" : "primary" });
    if (!isSure || !counted.count) return;
    await act(() => post(`/api/tasks/${verb}`, selection), (answer) => `${plural(answer.count, "task")} ${SAID[verb]}`);
    done();
  };
  const isOver = ["succeeded", "failed", "cancelled"].includes(filter.state);
  const hasAny = chosen.size || hasFilter(filter);
  return html`${chosen.size > 0 && html`<span class="soft">${chosen.size} chosen</span>`}
    ${hasAny && !isOver && html`<${Button} kind="danger" onClick=${change("cancel")}>cancel …<//>`}
    ${hasAny && (!filter.state || isOver) && filter.state !== "succeeded" && html`<${Button} onClick=${change("retry")}>retry …<//>`}
    ${hasAny && filter.state === "failed" && html`<${Button} onClick=${change("acknowledge")}>acknowledge …<//>`}`;
}

const Table = ({ items, backlog, chosen, choose, chooseAll }) => html`<div class="scroll"><table class="cards">
  <thead><tr>
    ${may("submit") && html`<th class="tight"><input type="checkbox" aria-label="choose all on this page" checked=${chosen.size === items.length} onChange=${(event) => chooseAll(event.target.checked)} /></th>`}
    <th class="tight">state</th><th>task</th><th class="hide-narrow">id</th><th class="hide-narrow">queue</th><th>details</th><th class="right hide-narrow">took</th><th class="right tight">created</th></tr></thead>
  <tbody>${items.map((one) => html`<${Row} key=${one.id} task=${one} backlog=${backlog} isChosen=${chosen.has(one.id)} choose=${choose} />`)}</tbody>
</table></div>`;

const Row = ({ task, backlog, isChosen, choose }) => html`<tr ...${opens(`/tasks/${task.id}`)}>
  ${may("submit") && html`<td class="tight"><input type="checkbox" aria-label=${`choose ${task.id}`} checked=${isChosen} onChange=${(event) => choose(task.id, event.target.checked)} /></td>`}
  <td class="tight"><${Badge} state=${task.state} /></td>
  <td class="clip"><a href=${`/tasks/${task.id}`}><b>${task.name}</b></a> <span class="mono faint">${argumentsOf(task.payload)}</span></td>
  <td class="hide-narrow nowrap mono soft">${task.id}</td>
  <td class="hide-narrow clip">${task.queue}${task.priority !== 0 && html` <span class="chip" title="priority">${task.priority > 0 ? "+" : ""}${task.priority}</span>`}</td>
  <td class="grow"><${Reason} task=${task} backlog=${backlog} /></td>
  <td class="right hide-narrow"><${Duration} from=${task.started_at_ms} to=${task.finished_at_ms} /></td>
  <td class="right tight end"><${Time} at=${task.created_at_ms} /></td>
</tr>`;

/** The arguments of a task in one short line. */
function argumentsOf(payload) {
  if (payload === null || payload === undefined) return "";
  const isNamed = typeof payload === "object" && !Array.isArray(payload);
  const text = isNamed ? Object.entries(payload).slice(0, 6).map(([name, value]) => `${name}=${JSON.stringify(value)?.slice(0, 40)}`).join(" ") : JSON.stringify(payload);
  return text.length > MOST_ARGUMENTS ? `${text.slice(0, MOST_ARGUMENTS)}…` : text;
}

/** One line that says what a task does or waits for. */
export function Reason({ task, backlog }) {
  const attempt = task.attempt > 1 || task.state === "scheduled" ? ` · attempt ${task.attempt} of ${task.max_attempts}` : "";
  if (task.state === "running") {
    const isShare = typeof task.progress === "number";
    return html`${isShare && html`<${Bar} share=${task.progress} /> `}<span class="soft">on ${task.worker_id}${attempt}</span>`;
  }
  if (task.state === "scheduled") {
    return html`<span class="soft">${task.error ? "tries again " : "due "}<${Time} at=${task.run_at_ms} />${task.attempt ? attempt : ""}</span>${task.error && html` <span class="error-text">${task.error.type}: ${task.error.message}</span>`}`;
  }
  if (task.state === "queued") {
    const lane = backlog.find((one) => one.queue === task.queue && one.name === task.name && String(one.requires) === String([...task.requires].sort()));
    return lane ? html`<span class=${lane.why.is_stuck ? "error-text" : "soft"}>${lane.why.text}</span>` : html`<span class="soft">waits for its turn</span>`;
  }
  if (task.error) return html`<span class="error-text">${task.error.type}: ${task.error.message}</span>`;
  return html`<span class="soft">${task.worker_id ? `by ${task.worker_id}` : ""}${attempt}</span>`;
}
