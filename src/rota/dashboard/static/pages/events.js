// The event log, live, filtered by type and subject, newest first.
import { withQuery } from "../api.js";
import { clockTime, absolute, short } from "../format.js";
import { html, useEffect, useState } from "../lib.js";
import { useEvents } from "../live.js";
import { useResource } from "../resource.js";
import { link, segment } from "../router.js";
import { Button, Empty, Field, Header, Panel, Problem, Tabs } from "../ui.js";

const MOST_SHOWN = 200;
const KINDS = ["task", "run", "worker", "queue", "workflow", "shards", "member", "lock", "memory", "token"];
const TONES = { failed: "red", succeeded: "green", completed: "green", started: "blue", submitted: "amber", retrying: "violet", cancelled: "grey", unregistered: "orange", registered: "green", paused: "slate", resumed: "green", health: "amber", "timed-out": "orange" };

export default function Events({ query }) {
  const path = withQuery("/api/events", { last: 200, type: query.type, subject: query.subject });
  const first = useResource(path);
  const [later, setLater] = useState([]);
  const [held, setHeld] = useState(null); // while reading: what came meanwhile
  useEffect(() => setLater([]), [path]);
  useEvents((event) => {
    if (event.seq && matches(event, query)) setLater((before) => [event, ...before].slice(0, MOST_SHOWN));
  }, [path]);
  const known = new Set();
  const shown = [...(held || later), ...[...(first.data?.items || [])].reverse()].filter((one) => !known.has(one.seq) && known.add(one.seq)).slice(0, MOST_SHOWN);
  return html`<${Header} title="Events" sub=${first.data && `numbers ${first.data.oldest_seq} to ${Math.max(first.data.last_seq, later[0]?.seq || 0)}`}>
      <${Button} onClick=${() => setHeld(held ? null : later)}>${held ? `show ${later.length - held.length} new` : "freeze the list"}<//><//>
    <${Tabs} label="kinds" items=${[{ label: "all", href: link("/events", { subject: query.subject }), isOn: !query.type }, ...KINDS.map((one) => ({ label: one, href: link("/events", { type: `${one}-*`, subject: query.subject }), isOn: query.type === `${one}-*` }))]} />
    <div class="filters"><${Field} name="type" label="type" placeholder="task-failed" data-search /><${Field} name="subject" label="subject" placeholder="id or name" /></div>
    <${Panel}>${shown.length ? html`<div class="scroll"><table class="cards"><thead><tr><th class="tight">at</th><th class="tight">event</th><th>subject</th><th>facts</th><th class="right tight hide-narrow">number</th></tr></thead>
      <tbody>${shown.map((one) => html`<tr key=${one.seq}><td class="tight number" title=${absolute(one.at_ms)}>${clockTime(one.at_ms)}</td>
        <td class="tight"><span class="badge" data-tone=${TONES[one.type.slice(one.type.indexOf("-") + 1)] || "grey"}><i aria-hidden="true"></i>${one.type}</span></td>
        <td class="nowrap"><${Subject} event=${one} /></td><td class="grow soft">${facts(one.data)}</td><td class="right tight faint hide-narrow number">${one.seq}</td></tr>`)}</tbody></table></div>`
      : first.data ? html`<${Empty}>No events of this kind are in the log.<//>` : html`<${Problem} of=${first} />`}<//>`;
}

function matches(event, query) {
  if (query.subject && event.subject !== query.subject) return false;
  if (!query.type) return true;
  return query.type.split(",").some((one) => (one.endsWith("*") ? event.type.startsWith(one.slice(0, -1)) : event.type === one));
}

function facts(data) {
  return Object.entries(data).map(([name, value]) => {
    if (name === "error" && value) return `${value.type}: ${value.message}`;
    if (name === "count") return `${short(value)} tasks`;
    return `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`;
  }).join(" · ");
}

function Subject({ event }) {
  const kind = event.type.slice(0, event.type.indexOf("-"));
  const hrefs = { task: event.data.count ? link("/tasks", { queue: event.subject }) : `/tasks/${segment(event.subject)}`, run: `/runs/${segment(event.subject)}`, worker: `/workers/${segment(event.subject)}`, queue: link("/tasks", { queue: event.subject }), workflow: `/workflows/${segment(event.subject)}`, shards: `/services/${segment(event.subject)}`, member: `/services/${segment(event.subject)}` };
  return hrefs[kind] ? html`<a class="mono" href=${hrefs[kind]}>${event.subject}</a>` : html`<span class="mono">${event.subject}</span>`;
}
