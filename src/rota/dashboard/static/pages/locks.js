// The locks that programs hold: by whom, under which fence, until when, and how many wait.
import { withQuery } from "../api.js";
import { plural, whole } from "../format.js";
import { html } from "../lib.js";
import { useResource } from "../resource.js";
import { Empty, Header, Pager, Panel, Problem, Time } from "../ui.js";

const PAGE = 50;

export default function Locks({ query }) {
  const locks = useResource(withQuery("/api/locks", { cursor: query.cursor, limit: PAGE }), { on: ["lock-"], every: 2000 });
  const items = locks.data?.items || [];
  return html`<${Header} title="Locks" sub="held now; a lock ends by itself when its holder stops renewing it" />
    <${Panel}>
      ${items.length ? html`<div class="scroll"><table>
        <thead><tr><th>lock</th><th>held by</th><th class="right">fence</th><th class="right">waiting</th><th class="right">ends unless renewed</th></tr></thead>
        <tbody>${items.map((one) => html`<tr key=${one.name}><td class="clip"><b>${one.name}</b></td><td class="clip">${one.holder}</td><td class="right number">${whole(one.fence)}</td><td class="right number">${whole(one.waiting ?? 0)}</td><td class="right"><${Time} at=${one.expires_at_ms} /></td></tr>`)}</tbody></table></div>`
        : locks.data ? html`<${Empty}>No lock is held. A program takes one with <code>with app.lock("name"):</code>.<//>` : html`<${Problem} of=${locks} />`}
      <${Pager} next=${locks.data?.next_cursor} shown=${plural(items.length, "lock")} first="first" further="next" />
    <//>`;
}
