// The locks that programs hold: by whom, under which fence, until when, and how many wait.
import { post, withQuery } from "../api.js";
import { act, confirm } from "../dialog.js";
import { plural, whole } from "../format.js";
import { html } from "../lib.js";
import { useResource } from "../resource.js";
import { segment } from "../router.js";
import { may } from "../session.js";
import { Button, Empty, Header, Pager, Panel, Problem, Time } from "../ui.js";

const PAGE = 50;

export default function Locks({ query }) {
  const locks = useResource(withQuery("/api/locks", { cursor: query.cursor, limit: PAGE }), { on: ["lock-"], every: 2000 });
  const items = locks.data?.items || [];
  return html`<${Header} title="Locks" sub="locks held now; a lock expires when its holder stops renewing it" />
    <${Panel}>
      ${items.length ? html`<div class="scroll"><table>
        <thead><tr><th>lock</th><th>held by</th><th class="right">fence</th><th class="right">waiting</th><th class="right">expires unless renewed</th>${may("keep") && html`<th class="tight"></th>`}</tr></thead>
        <tbody>${items.map((one) => html`<${Row} key=${one.name} lock=${one} reload=${locks.reload} />`)}</tbody></table></div>`
        : locks.data ? html`<${Empty}>No lock is held. A program takes one with <code>with app.lock("name"):</code>.<//>` : html`<${Problem} of=${locks} />`}
      <${Pager} next=${locks.data?.next_cursor} shown=${plural(items.length, "lock")} first="first" further="next" />
    <//>`;
}

function Row({ lock, reload }) {
  const release = async () => {
    const isSure = await confirm({ title: `Release ${lock.name}?`, label: "release it",
      text: html`It is taken away from <b>${lock.holder}</b>, which may still rely on it until it renews the lock. The next waiting caller gets it at once.` });
    if (!isSure) return;
    // Under the fence that is shown: a caller that got the lock meanwhile keeps it.
    await act(() => post(`/api/locks/${segment(lock.name)}/release`, { owner: lock.holder, fence: lock.fence }).finally(reload), `${lock.name} is released`);
  };
  return html`<tr><td class="clip"><b>${lock.name}</b></td><td class="clip">${lock.holder}</td><td class="right number">${whole(lock.fence)}</td><td class="right number">${whole(lock.waiting ?? 0)}</td><td class="right"><${Time} at=${lock.expires_at_ms} /></td>
    ${may("keep") && html`<td class="tight"><${Button} kind="small danger" onClick=${release}>release …<//></td>`}</tr>`;
}
