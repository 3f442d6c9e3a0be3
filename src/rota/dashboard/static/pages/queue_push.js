// Where the tasks of a queue are pushed to over HTTP, and the form that changes it.
import { del, put } from "../api.js";
import { FormDialog, act, confirm } from "../dialog.js";
import { duration } from "../format.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { segment } from "../router.js";
import { may } from "../session.js";
import { Button, Copy, Time } from "../ui.js";
import { seconds, toMs } from "./rates.js";

/** The line of a queue's settings about pushing. */
export function Push({ queue, reload }) {
  const path = `/api/queues/${segment(queue.name)}/push`;
  const push = useResource(queue.is_pushed && may("operate") ? path : null, { on: ["queue-push-"], every: 5000 });
  const [isEdited, setEdited] = useState(false);
  const [made, setMade] = useState(null);
  const one = queue.is_pushed ? push.data : null;
  const end = async () => {
    if (!(await confirm({ title: `Stop pushing ${queue.name}?`, text: "Requests under way finish. Other tasks wait for workers of the queue.", label: "stop pushing" }))) return;
    await act(() => del(path), `tasks of ${queue.name} are no longer pushed`);
    reload();
  };
  const change = may("operate") && html`<${Button} kind="small" onClick=${() => setEdited(true)}>${queue.is_pushed ? "change where to …" : "push …"}<//>`;
  return html`${!queue.is_pushed ? html`<span class="soft">no, workers lease its tasks</span>` : one ? html`<span class="break">${one.url}</span> <span class="soft">${one.concurrency} at once, ${duration(one.timeout_ms)} each</span>` : "yes"}
    ${one?.closed_until_ms && html` <span class="error-text">the server is busy until <${Time} at=${one.closed_until_ms} /></span>`}
    ${" "}${change} ${queue.is_pushed && may("operate") && html`<${Button} kind="small danger" onClick=${end}>stop pushing<//>`}
    ${made?.secret && html`<div class="why" data-tone="green"><div><b>Copy the secret now, it is not shown again.</b><p><code class="break">${made.secret}</code> <${Copy} text=${made.secret} label="copy the secret" /></p></div></div>`}
    ${isEdited && html`<${PushForm} path=${path} queue=${queue} push=${one} close=${() => setEdited(false)} done=${(stored) => { setMade(stored); reload(); push.reload(); }} />`}`;
}

/** `Name: value` in each line as header fields. */
function readHeaders(text) {
  const found = {};
  for (const line of text.split("\n").map((one) => one.trim()).filter(Boolean)) {
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`headers: "${line}" is not of the form Name: value`);
    found[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return found;
}

function PushForm({ path, queue, push, close, done }) {
  const submit = async (fields) => {
    const body = { url: fields.url, timeout_ms: toMs(fields.timeout), concurrency: Number(fields.concurrency) };
    if (fields.headers.trim()) body.headers = readHeaders(fields.headers);
    if (fields.secret.trim()) body.secret = fields.secret.trim();
    done(await put(path, body));
    return `${queue.name} is pushed`;
  };
  return html`<${FormDialog} title=${`Push ${queue.name} over HTTP`} label="push" submit=${submit} close=${close}>
    <label class="field"><span>URL that its tasks are posted to</span><input name="url" type="url" required maxlength="2000" autocomplete="off" spellcheck="false" placeholder="https://…" defaultValue=${push?.url ?? ""} /></label>
    <div class="beside two">
      <label class="field"><span>seconds for one request</span><input name="timeout" type="number" min="0.1" max="900" step="any" required defaultValue=${seconds(push?.timeout_ms ?? 30_000)} /></label>
      <label class="field"><span>tasks that are pushed at once</span><input name="concurrency" type="number" min="1" max="100" required defaultValue=${push?.concurrency ?? 10} /></label></div>
    <label class="field"><span>header fields, one in each line; empty: ${push?.headers.length ? `${push.headers.join(", ")} stay` : "none"}</span><textarea name="headers" rows="2" spellcheck=${false} placeholder="Authorization: Bearer …"></textarea></label>
    <label class="field"><span>secret that signs the requests; empty: ${push ? "unchanged" : "a new one"}</span><input name="secret" maxlength="200" autocomplete="off" spellcheck="false" placeholder="whsec_…" /></label>
    <p class="hint">The queue's own limits hold as well. An answer with 2xx ends a task with its body as the result; 400, 410, 413 and 422 fail it at once; other answers are tried again.</p><//>`;
}
