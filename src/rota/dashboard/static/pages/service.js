// One service: the owner and the target of each shard, and its members.
import { post, put } from "../api.js";
import { now } from "../clock.js";
import { act, confirm } from "../dialog.js";
import { plural, relative, whole } from "../format.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { segment } from "../router.js";
import { may } from "../session.js";
import { theme } from "../theme_switch.js";
import { Button, Empty, Header, Panel, Problem, Time } from "../ui.js";
import { Drain, Health } from "./drain.js";
import { Strip, hue } from "./service_strip.js";
import { MOVES } from "./services.js";

const LARGE = 20_000; // shards: beyond this the answer is megabytes, and asked for more seldom
const MOST_SHOWN = 100; // members before "more"

export default function Service({ params }) {
  const path = `/api/services/${segment(params.name)}`;
  const [isLarge, setLarge] = useState(false);
  const service = useResource(path, isLarge ? { on: MOVES, every: 15_000 } : { on: MOVES, every: 3000 });
  const [chosen, setChosen] = useState(null);
  if (!service.data) return html`<${Header} title=${params.name} /><${Problem} of=${service} />`;
  const one = service.data;
  if (isLarge !== one.shard_count > LARGE) setLarge(one.shard_count > LARGE);
  return html`<${Header} title=${one.name} sub=${html`<${Sum} service=${one} />`}><${Count} service=${one} path=${path} reload=${service.reload} /><//>
    ${service.problem && html`<${Problem} of=${service} />`}
    <${Why} service=${one} />
    <${Panel} title="Shards"><${Strip} service=${one} chosen=${chosen} /><//>
    <${Members} service=${one} path=${path} chosen=${chosen} choose=${setChosen} reload=${service.reload} />
    <${Moves} name=${one.name} />`;
}

const Sum = ({ service }) => html`${plural(service.shard_count, "shard")}${service.pinned ? ", pinned" : ""}, ${plural(service.member_count, "member")}, generation ${whole(service.generation)}, protocol ${service.min_protocol} or later`;

function Why({ service }) {
  const usable = service.members.filter((one) => !one.draining && !one.fenced);
  if (service.unowned && !usable.length) return html`<div class="why" data-tone="red"><b>${plural(service.unowned, "shard")} ${service.unowned === 1 ? "has" : "have"} no owner</b>${service.members.length ? ": every member is draining or fenced." : ": the service has no member."}</div>`;
  if (service.unowned) return html`<div class="why" data-tone="red"><b>${plural(service.unowned, "shard")} unowned.</b> ${service.members.reduce((sum, one) => sum + one.target.length, 0) < service.shard_count ? "Members take no more: see their limits." : "Each is granted with the next heartbeat of its new owner."}</div>`;
  if (!service.moving) return null;
  const holders = service.members.filter((one) => { const target = new Set(one.target); return one.shards.some((shard) => !target.has(shard)); });
  return html`<div class="why" data-tone="amber"><b>${plural(service.moving, "shard")} moving.</b> Still held by ${holders.slice(0, 5).map((one) => one.worker_id).join(", ") || "their owners"}${holders.length > 5 ? ` and ${holders.length - 5} more` : ""}: each is granted to its new owner when it is released.</div>`;
}

function Count({ service, path, reload }) {
  const [text, setText] = useState("");
  if (!may("operate")) return null;
  const set = (change, said) => act(() => put(path, change).finally(reload), said);
  const pin = async (event) => {
    event.preventDefault();
    const count = text === "" ? service.shard_count : Number(text);
    if (count !== service.shard_count && !(await confirm({ title: `Pin ${service.name} to ${plural(count, "shard")}?`, text: `It has ${whole(service.shard_count)} now. The shards are distributed again.`, label: "pin" }))) return;
    await set({ shard_count: count, pinned: true }, `pinned to ${plural(count, "shard")}`);
    setText("");
  };
  return html`<form class="pin" onSubmit=${pin}><input type="number" min="1" aria-label="number of shards" class="short" placeholder=${service.shard_count} value=${text} onInput=${(event) => setText(event.target.value)} /><button type="submit" class="button">pin</button>
    ${service.pinned && html`<${Button} onClick=${() => set({ pinned: false }, "unpinned: the members set the number of shards")}>unpin<//>`}</form>`;
}

function Members({ service, path, chosen, choose, reload }) {
  const [shown, setShown] = useState(MOST_SHOWN);
  const isDark = theme.value === "dark";
  if (!service.members.length) return html`<${Panel} title="Members"><${Empty}>None.<//><//>`;
  return html`<${Panel} title="Members"><div class="scroll"><table>
    <thead><tr><th>worker</th><th>health</th><th class="right hide-narrow">heartbeat</th><th class="right">owns</th><th class="right">target</th><th class="right hide-narrow">weight</th><th class="right hide-narrow">epochs</th><th class="hide-narrow">protocol</th>${may("operate") && html`<th></th>`}</tr></thead>
    <tbody>${service.members.slice(0, shown).map((one, index) => html`<tr key=${one.worker_id} class=${chosen === index ? "is-chosen" : ""}>
      <td><button type="button" class="json-toggle" aria-pressed=${chosen === index} title="show only its shards" onClick=${() => choose(chosen === index ? null : index)}><${Swatch} ink=${hue(index, isDark)} /><span class="wrap">${one.worker_id}</span></button>${one.fenced && html`<span class="sub error-text">fenced: ${one.fenced}</span>`}</td>
      <td class="nowrap"><${Health} health=${one.health} state=${one.draining ? "draining" : "active"} /></td>
      <td class="right number nowrap hide-narrow" title=${new Date(one.last_heartbeat_ms).toISOString()}>${relative(one.last_heartbeat_ms, now.value)}</td>
      <td class="right number">${whole(one.shards.length)}</td>
      <td class=${`right number ${one.target.length === one.shards.length ? "faint" : "moving"}`}>${whole(one.target.length)}${one.max_shards === null ? "" : ` ≤ ${whole(one.max_shards)}`}</td>
      <td class="right number hide-narrow">${one.weight}</td><td class="right number hide-narrow">${range(one.epochs)}</td><td class="hide-narrow">${one.protocol}</td>
      ${may("operate") && html`<td class="right"><${Drain} name=${one.worker_id} isDraining=${one.draining} set=${(draining) => post(`${path}/members/${segment(one.worker_id)}/drain`, { draining })} reload=${reload} size="small" /></td>`}</tr>`)}</tbody></table></div>
    ${service.members.length > shown && html`<p class="pager"><button type="button" class="button" onClick=${() => setShown(shown * 5)}>${plural(service.members.length - shown, "more", "more")}</button></p>`}<//>`;
}

const Swatch = ({ ink }) => html`<i class="dot" style=${{ background: ink }} aria-hidden="true"></i>`;

function range(epochs) {
  if (!epochs.length) return "–";
  let least = epochs[0], most = epochs[0];
  for (const one of epochs) { if (one < least) least = one; if (one > most) most = one; }
  return least === most ? String(least) : `${least}–${most}`;
}

const SAYS = {
  "shards-rebalanced": (data) => [data.moved && `${plural(data.moved, "shard")} to move to another member`, data.placed && `${plural(data.placed, "unowned shard")} assigned`].filter(Boolean).join(", ") || "nothing to move",
  "member-joined": (data) => `${data.worker_id} joined`,
  "member-left": (data) => (data.reason === "left" ? `${data.worker_id} left` : `${data.worker_id} is gone: ${data.reason}`),
};

function Moves({ name }) {
  const events = useResource(`/api/events?type=shards-*,member-*&subject=${encodeURIComponent(name)}&last=15`, { on: MOVES, every: 10_000 });
  const items = (events.data?.items || []).slice().reverse();
  return html`<${Panel} title="Last moves">${items.length ? html`<table><tbody>${items.map((one) => html`<tr key=${one.seq}><td class="tight"><${Time} at=${one.at_ms} /></td><td class="tight soft hide-narrow">${one.type}</td><td class="break">${SAYS[one.type]?.(one.data) ?? JSON.stringify(one.data)}</td></tr>`)}</tbody></table>`
    : events.data ? html`<${Empty}>None in the log.<//>` : html`<${Problem} of=${events} />`}<//>`;
}
