// The form that changes the settings of a queue.
import { patch } from "../api.js";
import { FormDialog } from "../dialog.js";
import { html } from "../lib.js";
import { segment } from "../router.js";
import { FAIRNESS, seconds, toMs } from "./rates.js";

const shares = (queue) => Object.entries(queue.weights || {});
const numberOf = (text) => (text === "" ? null : Number(text));
const msOf = (text) => (text === "" ? null : toMs(text));

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

export function QueueForm({ queue, close, reload }) {
  const submit = async (fields) => {
    const starts = numberOf(fields.rate);
    const rate = starts === null ? null : { ...queue.rate, limit: starts, per_ms: toMs(fields.per), burst: Number(fields.burst) };
    const wanted = { max_running: numberOf(fields.max_running), max_queued: numberOf(fields.max_queued), rate, weights: readWeights(fields.weights),
      target_wait_ms: msOf(fields.target), fairness: fields.fairness, aging_ms: msOf(fields.aging) };
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
    <div class="beside two">
      <label class="field"><span>seconds that tasks should wait at most</span><input name="target" type="number" min="0.001" step="any" placeholder="no target" defaultValue=${queue.target_wait_ms ? seconds(queue.target_wait_ms) : ""} /></label>
      <label class="field"><span>seconds of waiting that a point of priority is worth</span><input name="aging" type="number" min="0.001" step="any" placeholder="priority always first" defaultValue=${queue.aging_ms ? seconds(queue.aging_ms) : ""} /></label></div>
    <label class="field"><span>fairness</span><select name="fairness">${Object.entries(FAIRNESS).map(([value, text]) => html`<option key=${value} value=${value} selected=${value === queue.fairness}>${text}</option>`)}</select></label>
    <label class="field"><span>weights of tenants, one in each line</span><textarea name="weights" rows="3" spellcheck=${false} placeholder="ann=2" defaultValue=${shares(queue).map(([name, weight]) => `${name}=${weight}`).join("\n")}></textarea></label>
    <p class="hint">Changes apply at once, also to tasks that already wait; the worth of a point of priority applies to tasks that are submitted later. Running tasks continue. Beyond the number of queued tasks, submissions are refused with 429 queue_full.</p><//>`;
}
