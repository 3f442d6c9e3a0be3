// A diverged run: what its log has against what the code attempted, and the ways on.
import { post } from "../api.js";
import { act, confirm } from "../dialog.js";
import { plural, whole } from "../format.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { link, segment } from "../router.js";
import { may } from "../session.js";
import { Button, Problem } from "../ui.js";
import { ForkFunction } from "./run_actions.js";
import { Difference, lineOf } from "./source_text.js";

const MOST_RECORDED = 20;

export const isDiverged = (run) => run.state === "paused" && run.error?.type === "diverged";

export function Diverged({ run, code, reload }) {
  const { error } = run;
  const path = `/api/workflows/${segment(run.workflow)}`;
  const other = Number.isInteger(error.version) && error.version !== run.version ? error.version : null;
  const attempted = useResource(other === null ? null : `${path}/versions/${other}`);
  const newer = other === null ? code : attempted.data?.code;
  const recorded = Array.isArray(error.recorded) ? error.recorded : [];
  return html`<section class="panel diverged" aria-label="divergence">
    <header><h2>The code no longer matches the log of this run</h2></header>
    <div class="body"><p role="alert">${error.message}</p>
      <div class="facings">
        <${Side} title=${`recorded, version ${run.version}`} kind="is-old" code=${code} line=${error.recorded_line}>
          ${recorded.length ? html`<ul>${recorded.slice(0, MOST_RECORDED).map((one) => html`<li key=${one}><code>${one}</code></li>`)}</ul>` : html`<p class="soft">everything recorded was asked for</p>`}
          ${recorded.length > MOST_RECORDED && html`<p class="faint">and ${whole(recorded.length - MOST_RECORDED)} more</p>`}<//>
        <${Side} title=${`attempted${error.version ? `, version ${error.version}` : ""}`} kind="is-new" code=${newer} line=${error.attempted_line}>
          ${error.attempted ? html`<p><code>${error.attempted}</code></p>` : html`<p class="soft">it returned</p>`}<//>
      </div>
      <${Ways} run=${run} recorded=${recorded} reload=${reload} />
    </div>
    ${other !== null && html`<h3 class="part">What changed from <a href=${link(`/workflows/${segment(run.workflow)}`, { version: run.version, tab: "versions" })}>version ${run.version}</a> to ${other}</h3>${code && newer ? html`<${Difference} before=${code.source} after=${newer.source} />` : html`<${Problem} of=${attempted} />`}`}
  </section>`;
}

const Side = ({ title, kind, code, line, children }) => html`<div class=${`facing ${kind}`}><h3>${title}</h3>${children}
  ${line !== null && line !== undefined && html`<div class="text"><div class=${kind}><i>${line}</i>${lineOf(code, line) ?? "not in the function's own source"}</div></div>`}</div>`;

function Ways({ run, recorded, reload }) {
  const [isForking, setForking] = useState(false);
  if (!may("submit")) return null;
  const steer = async (verb, body, question, said) => { if (await confirm(question)) await act(() => post(`/api/runs/${run.id}/${verb}`, body).finally(reload), said); };
  const dropped = recorded.length || 1;
  return html`<div class="ways"><h3>How to continue</h3><dl>
    <div><dt><${Button} kind="primary" onClick=${() => steer("resume", {}, { title: "Resume this run?", text: `A worker tries it again. It diverges again unless that worker has the code of version ${run.version}, or code that does what the log says.`, label: "resume the run", kind: "primary" }, "the run continues")}>resume<//></dt><dd>after a worker with the earlier code is up, or the code was fixed</dd></div>
    <div><dt><${Button} kind="danger" onClick=${() => steer("resume", { accept: true }, { title: "Resume and accept the new code?", text: `${plural(dropped, "recorded operation")} ${dropped === 1 ? "is" : "are"} dropped from the log: ${recorded.slice(0, 5).join(", ") || run.error.path || "none"}${recorded.length > 5 ? " …" : ""}. What they did is not undone, and it is done again where the new code asks for it.`, label: "accept the new code" }, "the run continues with the new code")}>resume and accept<//></dt><dd>the new code is accepted; the operations listed as recorded are dropped</dd></div>
    <div><dt><${Button} onClick=${() => setForking(true)}>fork …<//></dt><dd>a new run with the log up to a step</dd></div>
    <div><dt><${Button} kind="danger" onClick=${() => steer("cancel", {}, { title: "Cancel this run?", text: `Its tasks and child runs are cancelled with it. A worker runs the function once more to undo its steps; code that does not follow the log diverges again.`, label: "cancel the run" }, "the run is being cancelled")}>cancel<//></dt><dd>its completed steps are undone if they define how</dd></div>
    <div><dt><${Button} kind="danger" onClick=${() => steer("cancel", { force: true }, { title: "End this run at once?", text: "Its tasks and child runs are cancelled with it, and nothing is undone.", label: "end it at once" }, "the run has ended")}>end at once<//></dt><dd>the run is cancelled, and nothing is undone</dd></div>
  </dl>${isForking && html`<${ForkFunction} run=${run} chosen=${run.error.path} close=${() => setForking(false)} />`}</div>`;
}
