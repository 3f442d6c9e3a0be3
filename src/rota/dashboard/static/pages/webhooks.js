// The list of webhooks: where events are delivered, and how their receivers take them.
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { segment } from "../router.js";
import { may } from "../session.js";
import { Badge, Button, Copy, Empty, Header, Panel, Problem, Time, opens } from "../ui.js";
import { WebhookForm } from "./webhook_form.js";

export const addressOf = (name) => `/webhooks/${segment(name)}`;

export default function Webhooks() {
  const webhooks = useResource(may("operate") ? "/api/webhooks" : null, { on: ["webhook-"], every: 5000 });
  const [isAdding, setAdding] = useState(false);
  const [made, setMade] = useState(null);
  if (!may("operate")) return html`<${Header} title="Webhooks" /><${Panel}><${Empty}>Only a token of the scope <code>admin</code> manages webhooks.<//><//>`;
  const items = webhooks.data?.items || [];
  return html`<${Header} title="Webhooks" sub="events that are delivered to other servers"><${Button} onClick=${() => setAdding(true)}>new webhook …<//><//>
    ${made?.secret && html`<${Secret} webhook=${made} />`}
    <${Panel}>
      ${items.length ? html`<div class="scroll"><table class="cards">
        <thead><tr><th>webhook</th><th>state</th><th>events</th><th class="right">waiting</th><th class="right">delivered</th><th class="right">last success</th></tr></thead>
        <tbody>${items.map((one) => html`<${Row} key=${one.name} webhook=${one} />`)}</tbody></table></div>`
        : webhooks.data ? html`<${Empty}>No webhook yet. One tells a chat or another program what fails, waits for people, or cannot start.<//>` : html`<${Problem} of=${webhooks} />`}
    <//>
    ${isAdding && html`<${WebhookForm} close=${() => setAdding(false)} done=${(webhook) => { setMade(webhook); webhooks.reload(); }} />`}`;
}

/** A secret that is shown once. */
export const Secret = ({ webhook }) => html`<div class="why" data-tone="green"><div><b>${webhook.name}: copy the secret now, it is not shown again.</b>
  <p><code class="break">${webhook.secret}</code> <${Copy} text=${webhook.secret} label="copy the secret" /></p></div></div>`;

const Row = ({ webhook: one }) => html`<tr ...${opens(addressOf(one.name))}>
  <td class="name"><a href=${addressOf(one.name)}><b>${one.name}</b></a>${one.description && html`<span class="sub clamp">${one.description}</span>`}</td>
  <td><${Badge} state=${one.state} /></td>
  <td><span class="chips">${one.events.slice(0, 4).map((kind) => html`<span class="chip" key=${kind}>${kind}</span>`)}${one.events.length > 4 && html`<span class="soft">and ${one.events.length - 4} more</span>`}</span></td>
  <td class="right number" data-label="waiting">${one.pending}</td><td class="right number" data-label="delivered">${one.delivered}</td>
  <td class="right" data-label="last success"><${Time} at=${one.last_success_ms} empty="never" /></td></tr>`;
