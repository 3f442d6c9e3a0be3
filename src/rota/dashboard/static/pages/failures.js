// Failed tasks, grouped by their error. A whole group can be retried or acknowledged at once.
import { post } from "../api.js";
import { FormDialog, act, confirm } from "../dialog.js";
import { plural, short, whole } from "../format.js";
import { html, useEffect, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { link, setQuery } from "../router.js";
import { may } from "../session.js";
import { Badge, Bar, Button, Empty, Header, Panel, Problem, Tabs, Time } from "../ui.js";

export default function Failures({ query }) {
  const isAcknowledged = query.acknowledged === "true";
  const failures = useResource(isAcknowledged ? "/api/failures?acknowledged=true" : "/api/failures", { on: ["task-failed", "task-retrying"], every: 10_000 });
  const all = failures.data?.items || [];
  const items = all.filter((one) => !query.find || `${one.name} ${one.error?.type} ${one.error?.message} ${Object.keys(one.queues)}`.toLowerCase().includes(query.find.toLowerCase()));
  const total = all.reduce((sum, one) => sum + one.count, 0);
  return html`<${Header} title="Failures" sub=${failures.data && `${plural(total, isAcknowledged ? "acknowledged task" : "failed task")}, ${plural(all.length, "cause")}${failures.data.is_complete ? "" : `; the largest of ${whole(failures.data.looked_at)} tasks`}`}>
      <label class="field"><span class="unseen">find</span><input data-search type="search" placeholder="find in names and errors" value=${query.find || ""} onInput=${(event) => setQuery({ find: event.target.value }, { replace: true })} /></label><//>
    <${Tabs} label="kinds" items=${[{ label: "need attention", href: "/failures", isOn: !isAcknowledged }, { label: "acknowledged", href: link("/failures", { acknowledged: "true" }), isOn: isAcknowledged }]} />
    ${items.map((one) => html`<${Group} key=${one.fingerprint} group=${one} total=${total} isAcknowledged=${isAcknowledged} reload=${failures.reload} />`)}
    ${!items.length && html`<${Panel}>${failures.data ? html`<${Empty}>${query.find ? "No failure matches." : isAcknowledged ? "No failed task is acknowledged." : "No failed task needs attention. Attempts that are tried again are under scheduled tasks."}<//>` : html`<${Problem} of=${failures} />`}<//>`}`;
}

function Group({ group, total, isAcknowledged, reload }) {
  const [isAsking, setAsking] = useState(false);
  const path = `/api/failures/${group.fingerprint}/acknowledge`;
  const undo = () => act(() => post(path, { undo: true }).finally(reload), (answer) => `${plural(answer.count, "task")} need attention again`);
  const redrive = async () => {
    const counted = await act(() => post(`/api/failures/${group.fingerprint}/retry`, { dry_run: true }));
    if (!counted) return;
    const isSure = await confirm({ title: `Retry ${plural(counted.count, "task")}?`, label: `retry ${plural(counted.count, "task")}`, kind: "primary",
      text: html`All <b>${whole(counted.count)}</b> tasks <b>${group.name}</b> that failed with <b>${group.error?.type || "no reason"}</b> go back to their queues with all their attempts.` });
    if (!isSure) return;
    await act(() => post(`/api/failures/${group.fingerprint}/retry`), (answer) => `${plural(answer.count, "task")} queued again`);
    reload();
  };
  const trace = group.error?.details?.traceback;
  return html`<${Panel} title=${html`<${Badge} state="failed">${whole(group.count)}<//> <span class="group-name">${group.name}</span>`}
      tools=${html`<span class="soft hide-narrow">last <${Time} at=${group.last_failed_at_ms} /> · first <${Time} at=${group.first_failed_at_ms} /></span>${may("submit") && html`${isAcknowledged ? html`<${Button} kind="small" onClick=${undo}>undo<//>` : html`<${Button} kind="small" onClick=${() => setAsking(true)}>acknowledge …<//>`}${!isAcknowledged && html`<${Button} kind="small" onClick=${redrive}>retry all …<//>`}`}`}>
    ${isAsking && html`<${Acknowledge} group=${group} path=${path} close=${() => setAsking(false)} reload=${reload} />`}
    <div class="body stack">
      <p class="error-text clamp"><b>${group.error?.type || "no reason given"}</b> ${group.error?.message}</p>
      ${typeof trace === "string" && html`<details open><summary>traceback of the newest</summary><pre class="trace">${trace}</pre></details>`}
      <p class="soft"><${Bar} share=${group.count / Math.max(1, total)} state="failed" label="share of all failures" /> ${Object.entries(group.queues).map(([queue, count]) => html`<a key=${queue} class="chip" href=${link("/tasks", { state: "failed", queue, name: group.name })}>${queue} ${short(count)}</a> `)}
        newest: ${group.task_ids.map((id) => html`<a key=${id} class="mono" href=${`/tasks/${id}`}>${id}</a> `)}</p>
    </div><//>`;
}

/** Asks for the reason, after a dry run has counted the tasks. */
function Acknowledge({ group, path, close, reload }) {
  const [count, setCount] = useState(null);
  useEffect(() => { post(path, { dry_run: true }).then((answer) => setCount(answer.count), () => setCount(0)); }, []);
  const submit = async ({ reason }) => {
    const answer = await post(path, { reason }).finally(reload);
    return `${plural(answer.count, "task")} acknowledged`;
  };
  return html`<${FormDialog} title=${count === null ? "Acknowledge?" : `Acknowledge ${plural(count, "task")}?`} label="acknowledge" submit=${submit} close=${close} isOff=${!count}>
    <p>They are removed from this list and from the counts that ask for attention. They stay in the history. You can undo this.</p>
    <label class="field"><span>reason</span><input name="reason" maxlength="1000" placeholder="optional" autocomplete="off" /></label><//>`;
}
