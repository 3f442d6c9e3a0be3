// Access tokens: what each may do and where, and their creation and revocation by an admin.
import { del, post } from "../api.js";
import { FormDialog, act, confirm } from "../dialog.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { segment } from "../router.js";
import { may } from "../session.js";
import { Button, Copy, Empty, Header, Panel, Problem, Time } from "../ui.js";

const SCOPES = [["submit", "submit and control tasks and runs"], ["worker", "run tasks"], ["read", "look at everything"], ["admin", "everything, tokens included"]];
const DAY_MS = 86_400_000;

export default function Access() {
  const tokens = useResource(may("operate") ? "/api/tokens" : null, { on: ["token-"], every: 10_000 });
  const [isAdding, setAdding] = useState(false);
  const [made, setMade] = useState(null);
  if (!may("operate")) return html`<${Header} title="Access" /><${Panel}><${Empty}>Only a token of the scope <code>admin</code> sees the tokens of others.<//><//>`;
  const items = tokens.data?.items || [];
  return html`<${Header} title="Access" sub="tokens of programs and people"><${Button} onClick=${() => setAdding(true)}>new token …<//><//>
    ${made && html`<div class="why" data-tone="green"><div><b>${made.name}: copy the token now, it is not shown again.</b><p><code>${made.token}</code> <${Copy} text=${made.token} label="copy the token" /></p></div></div>`}
    <${Panel}>
      ${items.length ? html`<div class="scroll"><table class="cards">
        <thead><tr><th>name</th><th>scopes</th><th>bound to</th><th class="right hide-narrow">created</th><th class="right">expires</th><th class="tight"></th></tr></thead>
        <tbody>${items.map((one) => html`<${Row} key=${one.id} token=${one} reload=${tokens.reload} />`)}</tbody></table></div>`
        : tokens.data ? html`<${Empty}>No token yet. Without one, only this machine may connect.<//>` : html`<${Problem} of=${tokens} />`}
    <//>
    ${isAdding && html`<${Add} close=${() => setAdding(false)} done=${(token) => { setMade(token); tokens.reload(); }} />`}`;
}

function Row({ token, reload }) {
  const revoke = async () => {
    if (!(await confirm({ title: `Revoke ${token.name}?`, text: "Programs that use it are refused within seconds. This cannot be undone.", label: "revoke it" }))) return;
    await act(() => del(`/api/tokens/${segment(token.id)}`), `${token.name} is revoked`);
    reload();
  };
  const bound = [...(token.queues || []).map((one) => `queue ${one}`), ...(token.services || []).map((one) => `service ${one}`), ...(token.worker_id ? [`worker ${token.worker_id}`] : [])];
  return html`<tr><td class="clip"><b>${token.name}</b> <span class="mono faint hide-narrow">${token.id}</span></td>
    <td>${token.scopes.join(", ")}</td>
    <td>${bound.length ? html`<span class="chips">${bound.map((one) => html`<span class="chip" key=${one}>${one}</span>`)}</span>` : html`<span class="faint">nothing</span>`}</td>
    <td class="right hide-narrow"><${Time} at=${token.created_at_ms} /></td><td class="right"><${Time} at=${token.expires_at_ms} empty="never" /></td>
    <td class="tight"><${Button} kind="small danger" onClick=${revoke}>revoke<//></td></tr>`;
}

const names = (text) => text.split(/[\s,]+/).filter(Boolean);

function Add({ close, done }) {
  const submit = async (fields) => {
    const scopes = SCOPES.map(([scope]) => scope).filter((scope) => fields[`scope-${scope}`]);
    if (!scopes.length) throw new Error("choose at least one scope");
    const body = { name: fields.name, scopes };
    if (fields.queues.trim()) body.queues = names(fields.queues);
    if (fields.services.trim()) body.services = names(fields.services);
    if (fields.days) body.expires_in_ms = Math.round(Number(fields.days) * DAY_MS);
    done(await post("/api/tokens", body));
    return "the token is created";
  };
  return html`<${FormDialog} title="New token" label="create" submit=${submit} close=${close}>
    <label class="field"><span>name, for people</span><input name="name" required maxlength="200" autocomplete="off" spellcheck="false" placeholder="billing workers" /></label>
    <fieldset class="choices"><legend>scopes</legend>${SCOPES.map(([scope, meaning]) => html`<label key=${scope}><input type="checkbox" name=${`scope-${scope}`} /> <b>${scope}</b> <span class="soft">${meaning}</span></label>`)}</fieldset>
    <label class="field"><span>bound to these queues; empty: all</span><input name="queues" autocomplete="off" spellcheck="false" placeholder="mail, reports" /></label>
    <label class="field"><span>bound to these services; empty: all, or none if it is bound to queues</span><input name="services" autocomplete="off" spellcheck="false" /></label>
    <label class="field"><span>lifetime in days; empty: no expiry</span><input name="days" type="number" min="0.01" step="any" /></label><//>`;
}
