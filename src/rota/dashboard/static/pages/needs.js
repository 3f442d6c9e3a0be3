// What open runs wait for from people and other systems: approvals, then signals, the oldest first.
import { post, withQuery } from "../api.js";
import { act, confirm } from "../dialog.js";
import { plural, whole } from "../format.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { link, segment } from "../router.js";
import { may } from "../session.js";
import { Button, Duration, Empty, Header, Pager, Panel, Problem, Tabs, Time } from "../ui.js";
import { SignalForm } from "./run_asks.js";

const PAGE = 50;
const LIVE = { on: ["run-", "task-succeeded"], every: 5000 };

export default function Needs({ query, overview }) {
  const waits = useResource(withQuery("/api/waits", { kind: query.kind, cursor: query.cursor, limit: PAGE }), LIVE);
  const counts = waits.data?.counts || overview?.waits || {};
  const tab = (label, kind, count) => ({ label, count, href: link("/needs", { kind }), isOn: (query.kind || "") === kind });
  return html`<${Header} title="Needs you" sub="What open runs wait for from people and other systems" />
    <${Tabs} label="kinds" items=${[tab("all", "", total(counts)), tab("approvals", "approval", counts.approval || 0), tab("signals", "signal", counts.signal || 0)]} />
    <${Panel}>${waits.data?.items.length ? html`<${List} items=${waits.data.items} reload=${waits.reload} />`
      : waits.data ? html`<${Empty}>No run waits for an approval or a signal.<//>` : html`<${Problem} of=${waits} />`}
      ${waits.data && waits.problem && html`<${Problem} of=${waits} />`}
      <${Pager} next=${waits.data?.next_cursor} shown=${plural(waits.data?.items.length || 0, "question")} first="oldest" further="newer" /><//>`;
}

const total = (counts) => (counts.approval || 0) + (counts.signal || 0);
const SHOWN = 5;

/** The first of them, for the overview; nothing is shown where nothing waits. */
export function NeedsYou({ counts }) {
  const count = total(counts);
  const waits = useResource(count ? `/api/waits?limit=${SHOWN}` : null, LIVE);
  if (!count || !waits.data?.items.length) return null;
  return html`<${Panel} title="Needs you" tools=${html`<a href="/needs">all ${whole(count)}</a>`}><${List} items=${waits.data.items} reload=${waits.reload} /><//>`;
}

const List = ({ items, reload }) => items.map((one) => html`<${Question} key=${one.token_id} wait=${one} reload=${reload} />`);

function Question({ wait, reload }) {
  const [isOpen, setOpen] = useState(false);
  // An answer names the token that the person has seen: it must not answer the next question.
  const send = (payload, said) => act(() => post(`/api/runs/${segment(wait.run_id)}/signal`, { name: wait.name, payload, token_id: wait.token_id }).finally(reload), said);
  const refuse = async () => { if (await confirm({ title: `Refuse “${wait.title}”?`, text: "The run goes on as if the answer were no.", label: "refuse" })) await send({ approved: false }, `${wait.name}: refused`); };
  const answer = wait.has_form ? html`<a class="button" href=${`/runs/${segment(wait.run_id)}`}>answer …</a>`
    : wait.kind === "signal" ? html`<${Button} onClick=${() => setOpen(!isOpen)} aria-expanded=${isOpen}>send …<//>`
    : html`<${Button} kind="primary" onClick=${() => send({ approved: true }, `${wait.name}: approved`)}>approve<//><${Button} onClick=${refuse}>refuse<//>`;
  return html`<div class="alert need"><i class="dot" data-tone=${wait.kind === "approval" ? "amber" : "teal"} aria-hidden="true"></i>
    <div><b>${wait.title}</b><span class="soft">${wait.kind} of <a href=${`/runs/${segment(wait.run_id)}`}>${wait.workflow} <span class="mono">${wait.run_id}</span></a>${wait.parent_run_id && html`, in <a href=${`/runs/${segment(wait.parent_run_id)}`}>${wait.parent_workflow}</a>`}
      ${" "}· waiting for <${Duration} from=${wait.since_ms} />${wait.due_at_ms !== null && html` · due <${Time} at=${wait.due_at_ms} />`}</span>
      ${isOpen && html`<${SignalForm} name=${wait.name} send=${async (payload, said) => { await send(payload, said); setOpen(false); }} />`}</div>
    ${may("submit") && html`<span class="answers">${answer}</span>`}</div>`;
}
