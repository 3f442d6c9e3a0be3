// The journal of a run, entry by entry: the event, the evaluated conditions and the decisions.
import { withQuery } from "../api.js";
import { clockTime, duration, plural, whole } from "../format.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { here, link, place, setQuery } from "../router.js";
import { Empty, Problem } from "../ui.js";
import { linesOf, namesOf } from "./run_words.js";

const PAGE = 40;
const SHOWN = 8; // decisions of an entry before "more"
const MOST_DECISIONS = 60; // fetched of one entry: a fan-out has tens of thousands
const MOST_VALUE = 120; // characters

export function Journal({ run, definition, last, at, onStep, isLive }) {
  const { query } = place.value;
  const after = Number(query.after) || 0;
  const journal = useResource(withQuery(`/api/runs/${run.id}/journal`, { after: after || undefined, limit: PAGE, decisions: MOST_DECISIONS }), isLive ? { on: ["run-", "task-"], every: 3000 } : {});
  if (!journal.data) return html`<${Problem} of=${journal} />`;
  const items = journal.data.items;
  if (!items.length) return html`<${Empty}>The journal is empty.<//>`;
  return html`<ol class="journal">
      ${items.map((entry) => html`<${Entry} key=${entry.number} entry=${entry} transitions=${definition.transitions || []} from=${run.created_at_ms} isAt=${at === entry.number} onStep=${onStep} />`)}
    </ol>
    <${Pages} after=${after} shown=${items.length} last=${Math.max(last, items.at(-1).number)} />`;
}

function Pages({ after, shown, last }) {
  if (last <= PAGE) return null;
  const to = (number) => link(here(), { ...place.value.query, after: Math.max(0, number) || "" });
  const jump = (event) => { event.preventDefault(); setQuery({ after: Math.max(0, (Number(new FormData(event.target).get("number")) || 1) - 1) || "" }); };
  return html`<nav class="pager" aria-label="pages of the journal">
    ${after > 0 && html`<a class="button" href=${to(0)}>first</a><a class="button" href=${to(after - PAGE)}>earlier</a>`}
    <form onSubmit=${jump}><label><span class="faint">${after + 1}–${after + shown} of ${whole(last)}, from </span><input name="number" type="number" min="1" max=${last} size="6" aria-label="entry number" placeholder="#" /></label></form>
    ${after + shown < last && html`<a class="button" href=${to(after + PAGE)}>later</a><a class="button" href=${to(last - PAGE)}>last</a>`}
  </nav>`;
}

function Entry({ entry, transitions, from, isAt, onStep }) {
  const [isWhole, setWhole] = useState(false);
  const lines = linesOf(entry.decisions, namesOf(entry), transitions);
  // Reasons first: what was weighed is why people read a journal.
  const ordered = [...lines.filter((one) => one.kind), ...lines.filter((one) => !one.kind)];
  const isCut = entry.decision_count > entry.decisions.length;
  return html`<li class=${isAt ? "is-at" : ""}>
    <span class="faint number">#${entry.number}</span>
    <span class="number soft" title=${clockTime(entry.at_ms)}>+${duration(entry.at_ms - from)}</span>
    <div class="what"><b>${entry.text || entry.event.type}</b>${said(entry.event)}
      <ul>${ordered.slice(0, isWhole ? undefined : SHOWN).map((one, index) => html`<li key=${index} class=${one.kind ? `is-${one.kind}` : ""}>${one.text} ${one.code && html`<code>${one.code}</code>`} ${one.value !== undefined && html`<span class="faint">${clip(one.value)}</span>`} ${one.at && clockTime(one.at)}</li>`)}</ul>
      ${ordered.length > SHOWN && !isWhole && html`<button type="button" class="button quiet small" onClick=${() => setWhole(true)}>${plural(ordered.length - SHOWN, "more", "more")}</button>`}
      ${isCut && html`<span class="faint">these are the first ${entry.decisions.length} of ${whole(entry.decision_count)} decisions</span>`}
    </div>
    <button type="button" class="button quiet small" title="show the graph as it was after this" onClick=${() => onStep(entry.number)}>show</button>
  </li>`;
}

function said(event) {
  const value = event.type === "RunStarted" ? event.input : event.type === "Signalled" ? event.payload : event.result;
  return value === undefined || value === null ? null : html` <span class="faint">${clip(value)}</span>`;
}

export function clip(value) {
  const text = JSON.stringify(value) ?? "";
  return text.length > MOST_VALUE ? `${text.slice(0, MOST_VALUE)}…` : text;
}
