// One webhook: what is set for it, how its receiver takes it, and its last deliveries.
import { del, post, put } from "../api.js";
import { act, confirm, toast } from "../dialog.js";
import { duration } from "../format.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { go, link, segment } from "../router.js";
import { may } from "../session.js";
import { Badge, Button, Empty, Facts, Header, Panel, Problem, Time } from "../ui.js";
import { WebhookForm, settingsOf } from "./webhook_form.js";
import { Secret } from "./webhooks.js";

const BECAUSE = { gone: "its receiver answered 410: it wants no more events", failing: "every request has failed for a day" };

export default function Webhook({ params: { name } }) {
  const path = `/api/webhooks/${segment(name)}`;
  const webhook = useResource(may("operate") ? path : null, { on: ["webhook-"], every: 3000 });
  const [isEdited, setEdited] = useState(false);
  const [made, setMade] = useState(null);
  if (!may("operate")) return html`<${Header} title=${name} /><${Panel}><${Empty}>Only a token of the scope <code>admin</code> manages webhooks.<//><//>`;
  const one = webhook.data;
  if (!one) return html`<${Header} title=${name} /><${Problem} of=${webhook} />`;
  const isLive = one.state === "active" || one.state === "failing";
  const test = () => act(() => post(`${path}/test`), (answer) => {
    if (answer.ok) return `the receiver answered ${answer.code} after ${duration(answer.took_ms)}`;
    toast(`the receiver did not accept it: ${answer.error}`, { isProblem: true });
    return null;
  });
  const toggle = async () => {
    await act(() => put(path, { ...settingsOf(one), enabled: !isLive }), isLive ? `${name} is switched off` : `${name} is switched on`);
    webhook.reload();
  };
  const remove = async () => {
    if (!(await confirm({ title: `Delete ${name}?`, text: "Deliveries that still wait are dropped, and its secret is deleted.", label: "delete it" }))) return;
    if (await act(() => del(path), `${name} is deleted`)) go("/webhooks");
  };
  return html`<${Header} title=${name} sub=${one.description}><${Badge} state=${one.state} />
      <${Button} onClick=${test}>send a test<//> <${Button} onClick=${() => setEdited(true)}>change …<//> <${Button} onClick=${toggle}>${isLive ? "switch off" : "switch on"}<//> <${Button} kind="danger" onClick=${remove}>delete<//><//>
    ${made?.secret && html`<${Secret} webhook=${made} />`}
    ${one.disabled_at_ms && html`<div class="why" data-tone="red"><div><b>It is disabled: ${BECAUSE[one.disabled_because] ?? one.disabled_because}.</b><p>Since <${Time} at=${one.disabled_at_ms} />. Switch it on when the receiver works again: it then delivers what still waits, and new events.</p></div></div>`}
    ${one.missed_at_ms && html`<div class="why" data-tone="amber"><div><b>Some events were deleted from the log before they could be delivered.</b><p>Last <${Time} at=${one.missed_at_ms} />.</p></div></div>`}
    <${Panel} title="Settings"><div class="body"><${Facts} items=${[
      ["URL", html`<span class="break">${one.url}</span>`],
      ["events", html`<${Chips} of=${one.events} />`],
      ["queues", one.queues.length ? html`<${Chips} of=${one.queues} />` : html`<span class="soft">all</span>`],
      ["workflows", one.workflows.length ? html`<${Chips} of=${one.workflows} />` : html`<span class="soft">all</span>`],
      ["body", one.format],
      ["delivered", html`<span class="number">${one.delivered}</span>${one.given_up > 0 && html` <span class="error-text">${one.given_up} given up</span>`}`],
      ["waiting", html`<span class="number">${one.pending}</span>`],
      ["last success", html`<${Time} at=${one.last_success_ms} empty="never" />`],
      ...(one.failing_since_ms ? [["failing since", html`<${Time} at=${one.failing_since_ms} /> <span class="soft">${one.failures} in a row</span>`]] : []),
    ]} /></div><//>
    <${Panel} title="Last deliveries">
      ${one.deliveries.length ? html`<div class="scroll"><table class="cards">
        <thead><tr><th>event</th><th>about</th><th>state</th><th class="right">attempts</th><th class="right">last</th><th class="right">next</th><th>answer</th></tr></thead>
        <tbody>${one.deliveries.map((delivery) => html`<${Row} key=${delivery.seq} delivery=${delivery} />`)}</tbody></table></div>`
        : html`<${Empty}>Nothing has been delivered yet.<//>`}
    <//>
    ${isEdited && html`<${WebhookForm} webhook=${one} close=${() => setEdited(false)} done=${(changed) => { setMade(changed); webhook.reload(); }} />`}`;
}

const Chips = ({ of: items }) => html`<span class="chips">${items.map((item) => html`<span class="chip" key=${item}>${item}</span>`)}</span>`;

const Row = ({ delivery: one }) => html`<tr>
  <td class="name"><b>${one.type}</b> <span class="mono faint">${one.seq}</span></td>
  <td class="clip">${one.type.startsWith("task-") ? html`<a href=${`/tasks/${segment(one.subject)}`}>${one.subject}</a>` : one.type.startsWith("run-") ? html`<a href=${`/runs/${segment(one.subject)}`}>${one.subject}</a>` : one.type.startsWith("queue-") ? html`<a href=${link("/queues", { queue: one.subject })}>${one.subject}</a>` : one.subject}</td>
  <td><${Badge} state=${one.state} /></td>
  <td class="right number" data-label="attempts">${one.attempts}</td>
  <td class="right" data-label="last"><${Time} at=${one.last_at_ms} empty="–" /></td>
  <td class="right" data-label="next"><${Time} at=${one.next_at_ms} empty="–" /></td>
  <td class="break">${one.code ?? ""} ${one.error && html`<span class="error-text">${one.error.replace(/^answered \d+:? ?/, "")}</span>`} ${one.took_ms !== null && html`<span class="soft">${duration(one.took_ms)}</span>`}</td></tr>`;
