// The form that submits a task from the browser.
import { post } from "../api.js";
import { FormDialog } from "../dialog.js";
import { html } from "../lib.js";
import { go } from "../router.js";

export function SubmitForm({ queues, names, close }) {
  const submit = async (fields) => {
    let payload = null;
    if (fields.payload.trim()) {
      try { payload = JSON.parse(fields.payload); } catch (error) { throw new Error(`the payload is not JSON: ${error.message}`); }
    }
    const body = { name: fields.name, queue: fields.queue || "default", payload, priority: Number(fields.priority || 0) };
    if (fields.delay) body.delay_ms = Math.round(Number(fields.delay) * 1000);
    if (fields.key) body.key = fields.key;
    const task = await post("/api/tasks", body);
    go(`/tasks/${task.id}`);
    return task.duplicate ? "a task with this key existed already" : "submitted";
  };
  return html`<${FormDialog} title="Submit a task" label="submit" submit=${submit} close=${close}>
    <label class="field"><span>name</span><input name="name" required maxlength="200" list="submit-names" autocomplete="off" spellcheck="false" /></label>
    <datalist id="submit-names">${names.map((one) => html`<option key=${one} value=${one} />`)}</datalist>
    <label class="field"><span>payload, as JSON: the arguments by name</span><textarea name="payload" rows="6" spellcheck="false" placeholder='{"name": "world"}'></textarea></label>
    <label class="field"><span>queue</span><input name="queue" maxlength="200" list="submit-queues" placeholder="default" autocomplete="off" spellcheck="false" /></label>
    <datalist id="submit-queues">${queues.map((one) => html`<option key=${one} value=${one} />`)}</datalist>
    <label class="field"><span>priority, higher first</span><input name="priority" type="number" step="1" defaultValue="0" /></label>
    <label class="field"><span>delay in seconds; empty: none</span><input name="delay" type="number" min="0" step="any" /></label>
    <label class="field"><span>idempotency key; empty: none</span><input name="key" maxlength="500" autocomplete="off" spellcheck="false" /></label><//>`;
}
