// The form that makes a webhook, or changes it.
import { put } from "../api.js";
import { FormDialog } from "../dialog.js";
import { html } from "../lib.js";
import { segment } from "../router.js";

const names = (text) => text.split(/[\s,]+/).filter(Boolean);
const DEFAULTS = "task-failed, run-failed, run-timed-out, run-approval-asked, queue-stuck, queue-target-missed, schedule-refused, worker-unregistered:unhealthy";
const FORMATS = { rota: "the event as JSON", slack: "an object with a text, for Slack and compatible chats" };

/** What a PUT of a webhook as it is would have. */
export const settingsOf = ({ url, events, queues, workflows, format, enabled, description }) => ({ url, events, queues, workflows, format, enabled, description });

export function WebhookForm({ webhook, close, done }) {
  const submit = async (fields) => {
    const body = { url: fields.url, events: names(fields.events), queues: names(fields.queues), workflows: names(fields.workflows),
      format: fields.format, enabled: fields.enabled === "on", description: fields.description };
    if (fields.secret.trim()) body.secret = fields.secret.trim();
    const name = webhook?.name ?? fields.name;
    done(await put(`/api/webhooks/${segment(name)}`, body));
    return `${name} is stored`;
  };
  const listed = (items) => (items || []).join(", ");
  return html`<${FormDialog} title=${webhook ? `Change ${webhook.name}` : "New webhook"} label=${webhook ? "change" : "create"} submit=${submit} close=${close}>
    ${!webhook && html`<label class="field"><span>name</span><input name="name" required maxlength="200" autocomplete="off" spellcheck="false" placeholder="team-chat" /></label>`}
    <label class="field"><span>URL of the receiver</span><input name="url" type="url" required maxlength="2000" autocomplete="off" spellcheck="false" placeholder="https://…" defaultValue=${webhook?.url ?? ""} /></label>
    <label class="field"><span>events: types, or a beginning and a star</span><textarea name="events" rows="3" required spellcheck=${false} defaultValue=${webhook ? listed(webhook.events) : DEFAULTS}></textarea></label>
    <div class="beside two">
      <label class="field"><span>only of these queues</span><input name="queues" autocomplete="off" spellcheck="false" placeholder="all" defaultValue=${listed(webhook?.queues)} /></label>
      <label class="field"><span>only of these workflows</span><input name="workflows" autocomplete="off" spellcheck="false" placeholder="all" defaultValue=${listed(webhook?.workflows)} /></label></div>
    <label class="field"><span>body</span><select name="format">${Object.entries(FORMATS).map(([value, text]) => html`<option key=${value} value=${value} selected=${value === (webhook?.format ?? "rota")}>${text}</option>`)}</select></label>
    <label class="field"><span>what it is for</span><input name="description" maxlength="1000" autocomplete="off" defaultValue=${webhook?.description ?? ""} /></label>
    <label class="field"><span>secret that signs its requests; empty: ${webhook ? "unchanged" : "a new one"}</span><input name="secret" maxlength="200" autocomplete="off" spellcheck="false" placeholder="whsec_…" /></label>
    <fieldset class="choices"><legend>delivery</legend><label><input type="checkbox" name="enabled" defaultChecked=${webhook ? webhook.state === "active" || webhook.state === "failing" : true} /> it delivers</label></fieldset>
    <p class="hint">Payloads and results of tasks are not sent. A request that fails is repeated for some hours, later and later.</p><//>`;
}
