// The open scopes of a run: fan-outs whose branches have not been joined, with the actions that end them.
import { post } from "../api.js";
import { act, confirm } from "../dialog.js";
import { whole } from "../format.js";
import { html } from "../lib.js";
import { useResource } from "../resource.js";
import { segment } from "../router.js";
import { may } from "../session.js";
import { Button, Panel, Time } from "../ui.js";

const fansOut = (one) => one.foreach !== undefined || one.spawn_count !== undefined || one.sibling_group !== undefined;

export function Scopes({ run, definition, reload }) {
  const isOpen = run.state === "running" || run.state === "paused";
  const isWanted = isOpen && (definition.transitions || []).some(fansOut);
  const path = `/api/runs/${segment(run.id)}/scopes`;
  const found = useResource(isWanted ? `${path}?limit=20` : null, { on: ["run-", "task-"], every: 3000 });
  if (!isWanted || !found.data?.items.length) return null;
  const again = () => { found.reload(); reload(); };
  const steer = async (scope, verb) => {
    const isSure = await confirm(verb === "complete"
      ? { title: `Complete scope ${scope.number}?`, text: "Its join fires with the branches that have arrived. It does not wait for the others.", label: "complete the scope" }
      : { title: `Cancel scope ${scope.number}?`, text: "Its branches end, and its join never fires. The rest of the run continues.", label: "cancel the scope" });
    if (isSure) await act(() => post(`${path}/${scope.number}/${verb}`).finally(again), `scope ${scope.number}: ${verb === "complete" ? "completed" : "cancelled"}`);
  };
  return html`<${Panel} title="Open scopes"><div class="scroll"><table><thead><tr><th>scope</th><th>fan-out</th><th>branches</th><th>join</th><th>opened</th><th></th></tr></thead><tbody>
    ${found.data.items.map((one) => html`<tr key=${one.number}><td class="number">${one.number}</td><td>${one.fan_out_transition_id}</td>
      <td>${Object.entries(one.branches).map(([state, count]) => `${whole(count)} ${state}`).join(", ")}${one.takes_branches ? "; takes more" : ""}</td>
      <td>${one.joins.map(joinWords).join("; ") || "none"}</td><td><${Time} at=${one.opened_at_ms} /></td>
      <td class="right">${may("submit") && html`${one.joins.length > 0 && html`<${Button} onClick=${() => steer(one, "complete")}>complete<//>`} <${Button} kind="danger" onClick=${() => steer(one, "cancel")}>cancel<//>`}</td></tr>`)}
  </tbody></table></div>${found.data.next_cursor && html`<p class="soft">The first 20 of them.</p>`}<//>`;
}

const joinWords = (join) => `${join.node_id}: ${whole(join.arrived)} of ${join.needed === null ? "all" : whole(join.needed)}${join.complete_on ? `, or signal ${join.complete_on}` : ""}`;
