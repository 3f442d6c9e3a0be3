// What a run waits for, or what stopped it, with the action that lets it continue.
import { post } from "../api.js";
import { act, confirm } from "../dialog.js";
import { plural } from "../format.js";
import { awaited, totalOf } from "../graph_shape.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { segment } from "../router.js";
import { may } from "../session.js";
import { tone } from "../states.js";
import { Button } from "../ui.js";

export function Asks({ run, definition, graph, reload, onChoose }) {
  const isOpen = run.state === "running" || run.state === "paused";
  const waiting = isOpen ? graph.nodes.filter((one) => one.tokens.waiting_for_event) : [];
  const count = (state) => graph.nodes.reduce((sum, one) => sum + (one.tokens[state] || 0), 0);
  return html`<${Stopped} run=${run} onChoose=${onChoose} />
    ${waiting.map((one) => html`<${Wait} key=${one.id} id=${one.id} node=${definition.nodes[one.id]} count=${one.tokens.waiting_for_event} run=${run} reload=${reload} />`)}
    ${run.state === "running" && count("dispatched") > 0 && !count("executing") && html`<div class="why" data-tone="amber"><div><b>${plural(count("dispatched"), "task")} wait${count("dispatched") === 1 ? "s" : ""} for a worker</b>, at ${graph.nodes.filter((one) => one.tokens.dispatched).map((one) => html`<button key=${one.id} type="button" class="button small" onClick=${() => onChoose(one.id)}>${one.id}</button> `)}: its task says why.</div></div>`}
    ${run.state === "running" && !totalOf(graph.nodes[0]?.tokens) && graph.nodes.every((one) => !totalOf(one.tokens)) && html`<div class="why" data-tone="violet">Accepted, not started yet.</div>`}`;
}

/** Why a run does not go on. */
export function Stopped({ run, onChoose }) {
  const error = run.error;
  return html`
    ${error && html`<div class="why" data-tone=${tone(run.state)} role="alert"><div class="grow-all"><b>${error.type || run.state}</b> ${error.message}${error.node && html` <button type="button" class="button small" onClick=${() => onChoose(error.node)}>at ${error.node}</button>`}${placeOf(error)}${error.cancelled && html` <span class="soft">cancelled: ${error.cancelled}</span>`}${error.not_undone && html`<div>not undone: ${error.not_undone.map((one) => `${one.node || one.path}${one.error ? ` (${one.error.message || one.error.type})` : ""}`).join(", ")}</div>`}</div></div>`}
    ${run.state === "paused" && html`<div class="why" data-tone="slate"><b>Paused.</b> What is running finishes; nothing new starts until the run is resumed.</div>`}`;
}

const placeOf = (error) => (error.place || error.path ? html` <code>${error.place || error.path}</code>` : null);

function Wait({ id, node, count, run, reload }) {
  const name = awaited(id, node);
  const approval = node.approval && typeof node.approval === "object" ? node.approval : {};
  // An answer names the token that the person has seen asking: it must not answer the next question.
  const asking = useResource(node.approval ? `/api/runs/${segment(run.id)}/tokens?node=${segment(id)}&state=waiting_for_event&limit=1` : null, { on: ["run-", "task-"], every: 3000 });
  const token_id = asking.data?.items[0]?.id;
  const send = (payload, said) => act(() => post(`/api/runs/${run.id}/signal`, { name, payload, ...(token_id && { token_id }) }).finally(() => { asking.reload(); reload(); }), said);
  const title = node.approval ? approval.title || `Approve ${id}?` : `Waiting for the signal ${name}`;
  const refuse = async () => { if (await confirm({ title: `Refuse ${id}?`, text: "The run goes on as if the answer were no.", label: "refuse" })) await send({ approved: false }, `${id}: refused`); };
  return html`<div class="why" data-tone="teal"><div class="grow-all"><b>${title}</b> <span class="soft">${node.approval ? "approval" : "signal"} ${name}${count > 1 ? `, ${plural(count, "token")}` : ""}</span>
    ${may("submit") && (node.approval
      ? token_id && html`<div class="asks"><${Button} kind="primary" onClick=${() => send({ approved: true }, `${id}: approved`)}>approve<//><${Button} kind="danger" onClick=${refuse}>refuse<//></div>`
      : html`<${SignalForm} name=${name} send=${send} />`)}</div></div>`;
}

export function SignalForm({ name, send }) {
  const [text, setText] = useState("{}");
  const [problem, setProblem] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    let payload;
    try { payload = text.trim() ? JSON.parse(text) : null; } catch (error) { setProblem(error.message); return; }
    setProblem("");
    await send(payload, `signal ${name} sent`);
  };
  return html`<form class="asks" onSubmit=${submit}><input aria-label="payload as JSON" value=${text} spellcheck=${false} class="mono" onInput=${(event) => setText(event.target.value)} /><button type="submit" class="button primary">send ${name}</button>${problem && html`<span class="error-text" role="alert">${problem}</span>`}</form>`;
}
