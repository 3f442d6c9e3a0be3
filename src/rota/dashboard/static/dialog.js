// The dialog that asks for confirmation, and the short messages that report a result.
import { html, signal, useEffect, useRef, useState } from "./lib.js";

const asked = signal(null); // { title, text, label, kind, answer }
const told = signal([]);
let number = 0;

/** Ask before something changes; gives true or false. */
export function confirm({ title, text, label = "do it", kind = "danger" }) {
  return new Promise((answer) => { asked.value = { title, text, label, kind, answer }; });
}

export function toast(text, { isProblem = false } = {}) {
  const one = { id: (number += 1), text, isProblem };
  told.value = [...told.value.slice(-3), one];
  setTimeout(() => { told.value = told.value.filter((other) => other !== one); }, isProblem ? 9000 : 4000);
}

/** Do something that may be refused, and tell how it went. */
export async function act(work, said) {
  try {
    const outcome = await work();
    const text = typeof said === "function" ? said(outcome) : said;
    if (text) toast(text);
    return outcome;
  } catch (problem) {
    toast(problem.detail || String(problem), { isProblem: true });
    return undefined;
  }
}

export function Dialogs() {
  return html`<${Question} question=${asked.value} />
    <div class="toasts" role="status" aria-live="polite">
      ${told.value.map((one) => html`<p key=${one.id} class=${one.isProblem ? "is-problem" : ""}>${one.text}</p>`)}
    </div>`;
}

function Question({ question }) {
  const dialog = useRef(null);
  useEffect(() => { if (question) dialog.current.showModal(); }, [question]);
  if (!question) return null;
  const close = (answer) => {
    asked.value = null;
    question.answer(answer);
  };
  return html`<dialog ref=${dialog} class="dialog" aria-labelledby="dialog-title" onCancel=${() => close(false)}>
    <h2 id="dialog-title">${question.title}</h2>
    <div class="dialog-text">${question.text}</div>
    <div class="dialog-tools">
      <button type="button" class="button" onClick=${() => close(false)}>go back</button>
      <button type="button" class=${`button ${question.kind}`} autofocus onClick=${() => close(true)}>${question.label}</button>
    </div>
  </dialog>`;
}

/** A dialog with fields: `submit` gives what to say, false to stay open, or throws what is wrong. */
export function FormDialog({ title, label, submit, close, kind = "", isOff = false, children }) {
  const dialog = useRef(null);
  const [problem, setProblem] = useState("");
  useEffect(() => { dialog.current.showModal(); }, []);
  const send = async (event) => {
    event.preventDefault();
    setProblem("");
    try {
      const said = await submit(Object.fromEntries(new FormData(event.target)));
      if (said === false) return;
      if (said) toast(said);
      close();
    } catch (wrong) {
      setProblem(wrong.detail || wrong.message);
    }
  };
  return html`<dialog ref=${dialog} class=${`dialog ${kind}`} aria-labelledby="form-title" onCancel=${close}><form class="form" onSubmit=${send}>
    <h2 id="form-title">${title}</h2>
    ${children}
    ${problem && html`<p class="is-wrong" role="alert">${problem}</p>`}
    <div class="dialog-tools"><button type="button" class="button" onClick=${close}>go back</button><button type="submit" class="button primary" disabled=${isOff}>${label}</button></div>
  </form></dialog>`;
}
