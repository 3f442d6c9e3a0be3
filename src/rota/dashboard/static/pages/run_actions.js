// The actions on a run: pause, resume, cancel, retry and fork, each shown when it is possible.
import { post } from "../api.js";
import { FormDialog, act, confirm } from "../dialog.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { go, segment } from "../router.js";
import { may } from "../session.js";
import { Button } from "../ui.js";

export function Actions({ run, definition, code, chosen, reload }) {
  const [isForking, setForking] = useState(false);
  if (!may("submit")) return null;
  const steer = (verb, said) => act(() => post(`/api/runs/${run.id}/${verb}`).finally(reload), said);
  const cancel = async () => { if (await confirm({ title: "Cancel this run?", text: `Its tasks and child runs are cancelled with it. Its completed ${code ? "steps" : "nodes"} are undone if they define how.`, label: "cancel the run" })) await steer("cancel", "the run is cancelled"); };
  const isOpen = run.state === "running" || run.state === "paused";
  return html`
    ${run.state === "running" && html`<${Button} onClick=${() => steer("pause", "the run is paused")}>pause<//>`}
    ${run.state === "paused" && html`<${Button} kind="primary" onClick=${() => steer("resume", "the run continues")}>resume<//>`}
    ${run.state === "failed" && html`<${Button} kind="primary" onClick=${() => steer("retry", "the run continues from where it failed")}>retry<//>`}
    <${Button} onClick=${() => setForking(true)}>fork …<//>
    ${isOpen && html`<${Button} kind="danger" onClick=${cancel}>cancel<//>`}
    ${isForking && code && html`<${ForkFunction} run=${run} close=${() => setForking(false)} />`}
    ${isForking && definition && html`<${Fork} run=${run} definition=${definition} chosen=${chosen} close=${() => setForking(false)} />`}`;
}

const MOST_PATHS = 500; // offered; any other can be written

/** A new run with the log of this one up to an operation. */
export function ForkFunction({ run, chosen, close }) {
  const log = useResource(`/api/runs/${segment(run.id)}/operations?limit=${MOST_PATHS}`);
  const paths = [...new Set((log.data?.items || []).map((one) => one.path))];
  const submit = async ({ path }) => {
    const made = await post(`/api/runs/${run.id}/fork`, { from_node: path });
    go(`/runs/${made.id}`);
    return "a new run was started";
  };
  return html`<${FormDialog} title="Fork this run" label="fork" submit=${submit} close=${close}>
    <p class="soft">A new run on the same input. It has what this run had recorded before the operation, and does the rest again.</p>
    <label class="field"><span>from operation</span><input name="path" list="fork-paths" required maxlength="1000" autocomplete="off" spellcheck=${false} defaultValue=${chosen || run.error?.path || ""} /></label>
    <datalist id="fork-paths">${paths.map((one) => html`<option key=${one} value=${one} />`)}</datalist>
  <//>`;
}

function Fork({ run, definition, chosen, close }) {
  const dialog = useRef(null);
  const [node, setNode] = useState(chosen || run.error?.node || definition.initial_node);
  const [text, setText] = useState(JSON.stringify(run.context?.state ?? {}, null, 2));
  const [problem, setProblem] = useState("");
  useEffect(() => { dialog.current.showModal(); }, []);
  const submit = async (event) => {
    event.preventDefault();
    let state;
    try { state = JSON.parse(text || "{}"); } catch (error) { setProblem(error.message); return; }
    const made = await act(() => post(`/api/runs/${run.id}/fork`, { from_node: node, state }), "a new run was started");
    if (made) { close(); go(`/runs/${made.id}`); }
  };
  return html`<dialog ref=${dialog} class="dialog" aria-labelledby="fork-title" onCancel=${close}><form class="form" onSubmit=${submit}>
    <h2 id="fork-title">Fork this run</h2>
    <p class="soft">A new run on the same input, from a node, with this state.</p>
    <label class="field"><span>from node</span><select value=${node} onChange=${(event) => setNode(event.target.value)}>${Object.keys(definition.nodes).map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select></label>
    <label class="field"><span>state</span><textarea rows="8" spellcheck=${false} value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
    ${problem && html`<p class="is-wrong" role="alert">${problem}</p>`}
    <div class="dialog-tools"><button type="button" class="button" onClick=${close}>go back</button><button type="submit" class="button primary">fork</button></div>
  </form></dialog>`;
}
