// The settings of a queue: how much of it runs, waits and starts, and the shares of its tenants.
import { patch } from "../api.js";
import { FormDialog } from "../dialog.js";
import { plural, whole } from "../format.js";
import { html, useState } from "../lib.js";
import { segment } from "../router.js";
import { may } from "../session.js";
import { Bar, Button, Facts, Panel } from "../ui.js";
import { pace, seconds, toMs } from "./rates.js";

const shares = (queue) => Object.entries(queue.weights || {});

/** What is set for a queue, in a few words beside its name. */
export function SettingsMark({ queue }) {
  const words = [];
  if (queue.max_running !== null) words.push(queue.max_running ? `at most ${whole(queue.max_running)} running` : "nothing may run");
  if (queue.rate) words.push(pace(queue.rate));
  if (queue.max_queued !== null) words.push(`at most ${whole(queue.max_queued)} queued`);
  if (shares(queue).length) words.push(plural(shares(queue).length, "weight"));
  return words.length ? html`<span class="sub mark">${words.join(" · ")}</span>` : null;
}

export function Settings({ queue, reload }) {
  const [isEdited, setEdited] = useState(false);
  if (!queue) return null;
  const change = may("operate") && html`<${Button} kind="small" onClick=${() => setEdited(true)}>change …<//>`;
  return html`<${Panel} title=${`${queue.name}: settings`} tools=${change}><div class="body"><${Facts} items=${[
    ["runs at once", html`<${Use} count=${queue.running} most=${queue.max_running} state="running" />`],
    ["queued", html`<${Use} count=${queue.depth} most=${queue.max_queued} state="queued" />`],
    ["rate of starts", queue.rate ? html`<span class="number">${pace(queue.rate)}</span>` : none],
    ["weights", shares(queue).length ? html`<span class="chips">${shares(queue).map(([name, weight]) => html`<span class="chip" key=${name}>${name} ${weight}</span>`)}</span>` : html`<span class="soft">all tenants (<code>fair_key</code>) have the same share</span>`],
  ]} /></div>${isEdited && html`<${Edit} queue=${queue} close=${() => setEdited(false)} reload=${reload} />`}<//>`;
}

const none = html`<span class="soft">no limit</span>`;

function Use({ count, most, state }) {
  if (most === null) return html`<span class="number">${whole(count)}</span> <span class="soft">now, no limit</span>`;
  return html`<${Bar} share=${most ? count / most : 1} state=${count >= most ? "degraded" : state} label=${`${state} of the limit`} /> <span class="number">${whole(count)} of ${whole(most)}</span>`;
}

const numberOf = (text) => (text === "" ? null : Number(text));

/** `ann=2` in each line as weights by tenant. */
export function readWeights(text) {
  const found = {};
  for (const line of text.split("\n").map((one) => one.trim()).filter(Boolean)) {
    const at = line.lastIndexOf("=");
    const weight = Number(line.slice(at + 1));
    if (at < 1 || !(weight > 0)) throw new Error(`weights: "${line}" is not of the form tenant=2`);
    found[line.slice(0, at).trim()] = weight;
  }
  return found;
}

function Edit({ queue, close, reload }) {
  const submit = async (fields) => {
    const starts = numberOf(fields.rate);
    const rate = starts === null ? null : { ...queue.rate, limit: starts, per_ms: toMs(fields.per), burst: Number(fields.burst) };
    const wanted = { max_running: numberOf(fields.max_running), max_queued: numberOf(fields.max_queued), rate, weights: readWeights(fields.weights) };
    const changed = Object.entries(wanted).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(queue[name]));
    if (!changed.length) return "nothing was changed";
    await patch(`/api/queues/${segment(queue.name)}`, Object.fromEntries(changed));
    reload();
    return `${queue.name} is changed`;
  };
  const rate = queue.rate;
  return html`<${FormDialog} title=${`Settings of ${queue.name}`} label="change" submit=${submit} close=${close}>
    <label class="field"><span>tasks that run at once, 0 lets none start</span><input name="max_running" type="number" min="0" placeholder="no limit" defaultValue=${queue.max_running ?? ""} /></label>
    <label class="field"><span>queued tasks beyond which submissions are refused</span><input name="max_queued" type="number" min="0" placeholder="no limit" defaultValue=${queue.max_queued ?? ""} /></label>
    <div class="beside">
      <label class="field"><span>starts</span><input name="rate" type="number" min="1" placeholder="no limit" defaultValue=${rate?.limit ?? ""} /></label>
      <label class="field"><span>in seconds</span><input name="per" type="number" min="0.001" step="any" required defaultValue=${seconds(rate?.per_ms ?? 1000)} /></label>
      <label class="field"><span>at once after a quiet time</span><input name="burst" type="number" min="1" required defaultValue=${rate?.burst ?? 1} /></label></div>
    <label class="field"><span>weights of tenants, one in each line</span><textarea name="weights" rows="3" spellcheck=${false} placeholder="ann=2" defaultValue=${shares(queue).map(([name, weight]) => `${name}=${weight}`).join("\n")}></textarea></label>
    <p class="hint">They hold at once, also for what waits already. What runs goes on. Beyond the number of queued tasks, submissions are refused with 429 queue_full.</p><//>`;
}
