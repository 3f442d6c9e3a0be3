// Failed tasks, grouped by their error. A whole group can be retried at once.
import { post } from "../api.js";
import { act, confirm } from "../dialog.js";
import { plural, short, whole } from "../format.js";
import { html } from "../lib.js";
import { useResource } from "../resource.js";
import { link, setQuery } from "../router.js";
import { may } from "../session.js";
import { Badge, Bar, Button, Empty, Header, Panel, Problem, Time } from "../ui.js";

export default function Failures({ query }) {
  const failures = useResource("/api/failures", { on: ["task-failed", "task-retrying"], every: 10_000 });
  const all = failures.data?.items || [];
  const items = all.filter((one) => !query.find || `${one.name} ${one.error?.type} ${one.error?.message} ${Object.keys(one.queues)}`.toLowerCase().includes(query.find.toLowerCase()));
  const total = all.reduce((sum, one) => sum + one.count, 0);
  return html`<${Header} title="Failures" sub=${failures.data && `${plural(total, "failed task")} of ${plural(all.length, "kind")}${failures.data.is_complete ? "" : `; the newest ${whole(failures.data.looked_at)} were looked at`}`}>
      <label class="field"><span class="unseen">find</span><input data-search type="search" placeholder="find in names and errors" value=${query.find || ""} onInput=${(event) => setQuery({ find: event.target.value }, { replace: true })} /></label><//>
    ${items.map((one) => html`<${Group} key=${one.fingerprint} group=${one} total=${total} reload=${failures.reload} />`)}
    ${!items.length && html`<${Panel}>${failures.data ? html`<${Empty}>${query.find ? "No failure has this in it." : "No task has failed for good. Attempts that are tried again stand under scheduled tasks."}<//>` : html`<${Problem} of=${failures} />`}<//>`}`;
}

function Group({ group, total, reload }) {
  const redrive = async () => {
    const counted = await act(() => post(`/api/failures/${group.fingerprint}/retry`, { dry_run: true }));
    if (!counted) return;
    const isSure = await confirm({ title: `Retry ${plural(counted.count, "task")}?`, label: `retry ${plural(counted.count, "task")}`, kind: "primary",
      text: html`All <b>${whole(counted.count)}</b> tasks <b>${group.name}</b> that failed with <b>${group.error?.type || "no reason"}</b> go back to their queues with all their attempts.` });
    if (!isSure) return;
    await act(() => post(`/api/failures/${group.fingerprint}/retry`), (answer) => `${plural(answer.count, "task")} sent round again`);
    reload();
  };
  const trace = group.error?.details?.traceback;
  return html`<${Panel} title=${html`<${Badge} state="failed">${whole(group.count)}<//> <span class="group-name">${group.name}</span>`}
      tools=${html`<span class="soft hide-narrow">last <${Time} at=${group.last_failed_at_ms} /> · first <${Time} at=${group.first_failed_at_ms} /></span>${may("submit") && html`<${Button} kind="small" onClick=${redrive}>retry all …<//>`}`}>
    <div class="body stack">
      <p class="error-text clamp"><b>${group.error?.type || "no reason given"}</b> ${group.error?.message}</p>
      ${typeof trace === "string" && html`<details><summary>traceback of the newest</summary><pre class="trace">${trace}</pre></details>`}
      <p class="soft"><${Bar} share=${group.count / Math.max(1, total)} state="failed" label="share of all failures" /> ${Object.entries(group.queues).map(([queue, count]) => html`<a key=${queue} class="chip" href=${link("/tasks", { state: "failed", queue, name: group.name })}>${queue} ${short(count)}</a> `)}
        newest: ${group.task_ids.map((id) => html`<a key=${id} class="mono" href=${`/tasks/${id}`}>${id}</a> `)}</p>
    </div><//>`;
}
