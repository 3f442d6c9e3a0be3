// The settings of a queue: how much of it runs, waits and starts, and the shares of its tenants.
import { duration, plural, whole } from "../format.js";
import { html, useState } from "../lib.js";
import { may } from "../session.js";
import { Bar, Button, Facts, Panel, Time } from "../ui.js";
import { QueueForm } from "./queue_form.js";
import { Push } from "./queue_push.js";
import { Tenants } from "./queue_tenants.js";
import { FAIRNESS, pace } from "./rates.js";

const shares = (queue) => Object.entries(queue.weights || {});

/** What is set for a queue, in a few words beside its name. */
export function SettingsMark({ queue }) {
  const words = [];
  if (queue.max_running !== null) words.push(queue.max_running ? `at most ${whole(queue.max_running)} running` : "nothing may run");
  if (queue.rate) words.push(pace(queue.rate));
  if (queue.max_queued !== null) words.push(`at most ${whole(queue.max_queued)} queued`);
  if (shares(queue).length) words.push(plural(shares(queue).length, "weight"));
  if (queue.is_pushed) words.push("pushed over HTTP");
  if (queue.target_wait_ms) words.push(`target ${period(queue.target_wait_ms)}`);
  return html`${words.length > 0 && html`<span class="sub mark">${words.join(" · ")}</span>`}${queue.target_missed_ms && html`<span class="sub mark error-text">${missed(queue)}</span>`}`;
}

/** Since when tasks of a queue wait longer than they should. */
const missed = (queue) => html`target missed since <${Time} at=${queue.target_missed_ms} />`;
const period = (ms) => duration(ms).replace(".0 s", " s");

export function Settings({ queue, reload }) {
  const [isEdited, setEdited] = useState(false);
  if (!queue) return null;
  const change = may("operate") && html`<${Button} kind="small" onClick=${() => setEdited(true)}>change …<//>`;
  return html`<${Panel} title=${`${queue.name}: settings`} tools=${change}><div class="body"><${Facts} items=${[
    ["runs at once", html`<${Use} count=${queue.running} most=${queue.max_running} state="running" />`],
    ["queued", html`<${Use} count=${queue.depth} most=${queue.max_queued} state="queued" />`],
    ["wait at most", queue.target_wait_ms ? html`<span class="number">${period(queue.target_wait_ms)}</span> ${queue.target_missed_ms ? html`<span class="error-text">missed since <${Time} at=${queue.target_missed_ms} /></span>` : html`<span class="soft">is met</span>`}` : html`<span class="soft">no target</span>`],
    ["a point of priority", queue.aging_ms ? html`is worth <span class="number">${period(queue.aging_ms)}</span> of waiting` : html`<span class="soft">always goes before age</span>`],
    ["rate of starts", queue.rate ? html`<span class="number">${pace(queue.rate)}</span>` : none],
    ["fairness", FAIRNESS[queue.fairness]],
    ["weights", shares(queue).length ? html`<span class="chips">${shares(queue).map(([name, weight]) => html`<span class="chip" key=${name}>${name} ${weight}</span>`)}</span>` : html`<span class="soft">all tenants (<code>fair_key</code>) have the same share</span>`],
    ["pushed to", html`<${Push} queue=${queue} reload=${reload} />`],
  ]} /></div>${isEdited && html`<${QueueForm} queue=${queue} close=${() => setEdited(false)} reload=${reload} />`}<//><${Tenants} queue=${queue} />`;
}

const none = html`<span class="soft">no limit</span>`;

function Use({ count, most, state }) {
  if (most === null) return html`<span class="number">${whole(count)}</span> <span class="soft">now, no limit</span>`;
  return html`<${Bar} share=${most ? count / most : 1} state=${count >= most ? "degraded" : state} label=${`${state} of the limit`} /> <span class="number">${whole(count)} of ${whole(most)}</span>`;
}
