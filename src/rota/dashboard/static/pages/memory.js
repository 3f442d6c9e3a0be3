// The values that programs store by key: a list with filters, and changes by operators.
import { del, put, withQuery } from "../api.js";
import { FormDialog, act, confirm } from "../dialog.js";
import { plural, whole } from "../format.js";
import { Json } from "../json.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { segment } from "../router.js";
import { may } from "../session.js";
import { Button, Empty, Field, Header, Pager, Panel, Problem, Time } from "../ui.js";

const PAGE = 50;
const pathOf = (key) => `/api/memory/${key.split("/").map(segment).join("/")}`;

export default function Memory({ query }) {
  const path = withQuery("/api/memory", { prefix: query.prefix, cursor: query.cursor, limit: PAGE });
  const values = useResource(path, { on: ["memory-"], every: 5000 });
  const [edited, setEdited] = useState(null); // null | {} for a new one | a value
  const items = values.data?.items || [];
  return html`<${Header} title="Memory" sub="values that programs store by key">
      ${may("keep") && html`<${Button} onClick=${() => setEdited({})}>put a value …<//>`}<//>
    <div class="filters" role="search"><${Field} name="prefix" label="key begins with" data-search=${true} />${query.prefix && html`<a class="button quiet" href="/memory">clear</a>`}</div>
    <${Panel}>
      ${items.length ? html`<div class="scroll"><table class="cards">
        <thead><tr><th>key</th><th>value</th><th class="right hide-narrow">version</th><th class="right">changed</th><th class="right hide-narrow">expires</th>${may("keep") && html`<th class="tight"></th>`}</tr></thead>
        <tbody>${items.map((one) => html`<${Row} key=${one.key} value=${one} edit=${setEdited} reload=${values.reload} />`)}</tbody></table></div>`
        : values.data ? html`<${Empty}>${query.prefix ? "No key begins with this." : html`No value yet. A program puts one with <code>app.memory.put("key", value)</code>, you with <code>rota memory put KEY VALUE</code>.`}<//>` : html`<${Problem} of=${values} />`}
      <${Pager} next=${values.data?.next_cursor} shown=${plural(items.length, "value")} first="first" further="next" />
    <//>
    ${edited && html`<${Edit} value=${edited} close=${() => setEdited(null)} reload=${values.reload} />`}`;
}

function Row({ value: one, edit, reload }) {
  const remove = async () => {
    if (!(await confirm({ title: `Delete ${one.key}?`, text: "Programs that read it will find no value.", label: "delete it" }))) return;
    await act(() => del(withQuery(pathOf(one.key), { if_version: one.version })), `${one.key} is deleted`);
    reload();
  };
  return html`<tr>
    <td class="clip"><b>${one.key}</b></td>
    <td class="grow"><details><summary class="clip mono">${JSON.stringify(one.value).slice(0, 120)}</summary><${Json} value=${one.value} label=${one.key} /></details></td>
    <td class="right number hide-narrow">${whole(one.version)}</td>
    <td class="right"><${Time} at=${one.updated_at_ms} /></td>
    <td class="right hide-narrow"><${Time} at=${one.expires_at_ms} empty="never" /></td>
    ${may("keep") && html`<td class="tight"><span class="nowrap"><${Button} kind="small" onClick=${() => edit(one)}>change …<//> <${Button} kind="small danger" onClick=${remove}>delete<//></span></td>`}</tr>`;
}

function Edit({ value, close, reload }) {
  const isNew = value.key === undefined;
  const submit = async (fields) => {
    let parsed;
    try { parsed = JSON.parse(fields.value); } catch (error) { throw new Error(`the value is not JSON: ${error.message}`); }
    const body = { value: parsed };
    if (fields.ttl) body.ttl_ms = Math.round(Number(fields.ttl) * 1000);
    if (!isNew) body.if_version = value.version;
    const key = isNew ? fields.key : value.key;
    await put(pathOf(key), body);
    reload();
    return `${key} is stored`;
  };
  return html`<${FormDialog} title=${isNew ? "Put a value" : `Change ${value.key}`} label="put" submit=${submit} close=${close}>
    ${isNew && html`<label class="field"><span>key</span><input name="key" required maxlength="500" autocomplete="off" spellcheck="false" placeholder="settings/mail" /></label>`}
    <label class="field"><span>value, as JSON</span><textarea name="value" rows="8" required spellcheck="false">${isNew ? "" : JSON.stringify(value.value, null, 2)}</textarea></label>
    <label class="field"><span>lifetime in seconds; empty: no expiry</span><input name="ttl" type="number" min="0.001" step="any" /></label>
    ${!isNew && html`<p class="hint">It is changed only if no program has changed it since you opened this form.</p>`}<//>`;
}
