// The input of a new run: a form made from the JSON Schema, or a JSON editor where the schema is
// too open or too complex for a form.
import { post } from "../api.js";
import { act } from "../dialog.js";
import { html, useState } from "../lib.js";
import { go } from "../router.js";

export function StartForm({ name, version, schema }) {
  const [key, setKey] = useState("");
  const send = async (input, setProblem) => {
    const run = await act(async () => {
      try { return await post("/api/runs", { workflow: name, version, input, key: key || undefined }); } catch (error) { setProblem(error.detail); throw error; }
    }, (made) => (made.duplicate ? "this key has a run already" : "the run was started"));
    if (run) go(`/runs/${run.id}`);
  };
  return html`<${SchemaForm} schema=${schema} label="input as JSON" verb="start a run" nothing="It takes no input." send=${send}>
    <label class="field"><span>idempotency key; empty: none</span><input value=${key} autocomplete="off" placeholder="none" onInput=${(event) => setKey(event.target.value)} /></label><//>`;
}

/** A value by its schema: `send` gets the value, and a function that takes what is wrong with it. */
export function SchemaForm({ schema, label, verb, nothing, send, tools, children }) {
  const fields = fieldsOf(schema);
  const [isJson, setJson] = useState(!fields);
  const [values, setValues] = useState(() => firstValues(fields || []));
  const [text, setText] = useState(() => JSON.stringify(example(schema), null, 2));
  const [problem, setProblem] = useState("");
  const read = () => (isJson ? JSON.parse(text) : gathered(fields, values));
  const flip = () => {
    try {
      if (!isJson) setText(JSON.stringify(read(), null, 2));
      setProblem("");
    } catch (error) { setProblem(error.message); }
    setJson(!isJson);
  };
  const submit = async (event) => {
    event.preventDefault();
    let input;
    try { input = read(); } catch (error) { setProblem(error.message); return; }
    setProblem("");
    await send(input, setProblem);
  };
  return html`<form class="form" onSubmit=${submit}>
    ${isJson ? html`<label class="field"><span>${label}</span><textarea rows="9" spellcheck=${false} value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>`
      : fields.map((field) => html`<${Input} key=${field.name} field=${field} value=${values[field.name]} change=${(value) => setValues({ ...values, [field.name]: value })} />`)}
    ${!isJson && !fields.length && nothing && html`<p class="hint">${nothing}</p>`}
    ${children}
    ${problem && html`<p class="is-wrong" role="alert">${problem}</p>`}
    <div class="form-tools"><button type="submit" class="button primary">${verb}</button>${tools}${fields && html`<button type="button" class="button quiet" onClick=${flip}>${isJson ? "as a form" : "as JSON"}</button>`}</div>
  </form>`;
}

/** Fields of an object's schema; null: a form cannot say it. */
function fieldsOf(schema) {
  if (!schema || typeof schema !== "object" || schema.type !== "object" || typeof schema.properties !== "object") return null;
  if (["oneOf", "anyOf", "allOf", "if", "$ref"].some((word) => schema[word] !== undefined)) return null;
  const required = new Set(schema.required || []);
  return Object.entries(schema.properties).map(([name, one]) => ({ name, schema: one || {}, isRequired: required.has(name), kind: kindOf(one || {}) }));
}

function kindOf(schema) {
  if (Array.isArray(schema.enum)) return "choice";
  if (schema.type === "boolean") return "check";
  if (schema.type === "integer" || schema.type === "number") return "number";
  if (schema.type === "string") return schema.maxLength > 200 ? "long" : "text";
  if (schema.type === "array" && schema.items?.type === "string" && !schema.items.enum) return "list";
  return "json";
}

const firstValues = (fields) => Object.fromEntries(fields.map(({ name, kind, schema, isRequired }) => {
  const given = schema.default;
  if (kind === "check") return [name, given ?? false];
  if (kind === "choice") return [name, given === undefined ? (isRequired ? JSON.stringify(schema.enum[0]) : "") : JSON.stringify(given)];
  if (kind === "list") return [name, (given || []).join("\n")];
  if (kind === "json") return [name, given === undefined ? (isRequired ? JSON.stringify(example(schema)) : "") : JSON.stringify(given)];
  return [name, given === undefined ? "" : String(given)];
}));

/** The least that such a schema could mean. */
function example(schema) {
  if (!schema || typeof schema !== "object") return {};
  if (schema.default !== undefined) return schema.default;
  if (Array.isArray(schema.enum)) return schema.enum[0];
  switch (schema.type) {
    case "array": return [];
    case "string": return "";
    case "integer": case "number": return schema.minimum ?? 0;
    case "boolean": return false;
    default: return Object.fromEntries((schema.required || []).map((name) => [name, example(schema.properties?.[name])]));
  }
}

function gathered(fields, values) {
  const input = {};
  for (const { name, kind, schema, isRequired } of fields) {
    const value = values[name];
    if (kind === "check") { if (value || isRequired || schema.default !== undefined) input[name] = value; continue; }
    if (kind === "list") { const items = value.split("\n").map((one) => one.trim()).filter(Boolean); if (items.length || isRequired) input[name] = items; continue; }
    if (value === "" && !(isRequired && (kind === "text" || kind === "long"))) {
      if (isRequired) throw new Error(`${name} is required`);
      continue;
    }
    if (kind === "text" || kind === "long") input[name] = value;
    else if (kind === "number") {
      input[name] = Number(value);
      if (Number.isNaN(input[name])) throw new Error(`${name} is not a number`);
    } else {
      try { input[name] = JSON.parse(value); } catch (error) { throw new Error(`${name}: ${error.message}`); }
    }
  }
  return input;
}

function Input({ field, value, change }) {
  const { name, schema, kind, isRequired } = field;
  const label = `${schema.title || name}${isRequired ? " *" : ""}`;
  const hint = schema.description && html`<span class="hint">${schema.description}</span>`;
  const typed = (event) => change(event.target.value);
  if (kind === "check") return html`<label class="check"><input type="checkbox" checked=${value} onChange=${(event) => change(event.target.checked)} />${label} ${hint}</label>`;
  return html`<label class="field"><span>${label}</span>
    ${kind === "choice" ? html`<select value=${value} onChange=${typed}>${!isRequired && html`<option value="">–</option>`}${schema.enum.map((one) => html`<option key=${JSON.stringify(one)} value=${JSON.stringify(one)}>${String(one)}</option>`)}</select>`
      : ["long", "json", "list"].includes(kind) ? html`<textarea rows="3" spellcheck=${false} value=${value} placeholder=${kind === "json" ? `JSON, ${schema.type || "any"}` : kind === "list" ? "one a line" : ""} onInput=${typed}></textarea>`
        : html`<input type=${kind === "number" ? "number" : "text"} step=${schema.type === "integer" ? 1 : "any"} min=${schema.minimum} max=${schema.maximum} minlength=${schema.minLength} maxlength=${schema.maxLength} required=${isRequired && kind === "number"} value=${value} autocomplete="off" onInput=${typed} />`}
    ${hint}</label>`;
}
