// The frame around every page: navigation with live counts, and the state of the connection.
import { html, useEffect, useRef, useState } from "./lib.js";
import { needsLogin } from "./api.js";
import { isAbsolute, learnTime, switchTimes } from "./clock.js";
import { Dialogs } from "./dialog.js";
import { short } from "./format.js";
import { overlay } from "./keyboard.js";
import { liveState, togglePause } from "./live.js";
import { Login } from "./login.js";
import { Overlay } from "./palette.js";
import { useResource } from "./resource.js";
import { link, matching, pages, place } from "./router.js";
import { logout, me } from "./session.js";
import { TASK_STATES } from "./states.js";
import { switchTheme, theme } from "./theme_switch.js";
import { Dot, Empty, Header, Time } from "./ui.js";

const LIVE_WORDS = { live: "live", connecting: "connecting", polling: "polling", paused: "paused" };

export function Shell() {
  if (needsLogin.value) return html`<${Login} />`;
  return html`<${Frame} /><${Overlay} /><${Dialogs} />`;
}

function Frame() {
  const overview = useResource("/api/overview", { on: ["task-", "run-", "worker-", "queue-", "member-", "shards-"], every: 5000 });
  const [isOpen, setOpen] = useState(false);
  const { path, query } = place.value;
  const found = matching(path);
  const main = useRef(null);
  useEffect(() => { if (overview.data) learnTime(overview.data.now_ms); }, [overview.data]);

  useEffect(() => {
    document.title = found ? `${titleOf(found)} · Rota` : "Rota";
    setOpen(false);
  }, [path]);
  const isFirst = useRef(true);
  useEffect(() => {
    // A user of a screen reader hears the new page's name.
    if (!isFirst.current) main.current.querySelector("h1")?.focus({ preventScroll: true });
    isFirst.current = false;
  }, [path]);

  return html`<a class="skip" href="#main">to the content</a>
    <div class=${`frame ${isOpen ? "is-open" : ""} ${isUnreachable(overview.problem) ? "is-old" : ""}`}>
      <header class="top">
        <button type="button" class="button quiet menu" aria-expanded=${isOpen} aria-controls="side" onClick=${() => setOpen(!isOpen)}>☰<span class="unseen">menu</span></button>
        <a class="brand" href="/"><img src=${new URL("icon.svg", import.meta.url).href} alt="" width="20" height="20" />Rota</a>
        <${Tools} problem=${overview.problem} />
      </header>
      <nav id="side" class="side" aria-label="pages"><${Side} overview=${overview.data} /></nav>
      <main id="main" tabindex="-1" ref=${main}>
        <${Banner} overview=${overview} />
        ${found ? html`<${found.page.component} key=${path} params=${found.params} query=${query} overview=${overview.data} isOld=${isUnreachable(overview.problem)} />` : html`<${Lost} />`}
      </main>
    </div>`;
}

const titleOf = ({ page, params }) => (typeof page.title === "function" ? page.title(params) : page.title);

const Lost = () => html`<${Header} title="Page not found" />
  <${Empty}>There is no page at this address. Go to the <a href="/">overview</a>, choose a page from the menu, or press <kbd>Ctrl K</kbd> and type a name or an id.<//>`;

/** Says that the coordinator does not answer: what the page shows is then old, and greyed. */
function Banner({ overview }) {
  const isLost = isUnreachable(overview.problem);
  if (!isLost) return null;
  return html`<p class="banner" role="alert"><b>The coordinator does not answer.</b> ${overview.data
    ? html`What you see is from <${Time} at=${overview.data.now_ms} /> and may be wrong by now.`
    : "Is it running, and can this browser reach it?"} The dashboard keeps trying.</p>`;
}

const isUnreachable = (problem) => Boolean(problem) && (problem.status === 0 || problem.status >= 502);

function Tools({ problem }) {
  const state = isUnreachable(problem) ? "unreachable" : liveState.value;
  return html`<div class="top-tools">
    <button type="button" class="button quiet palette-button" onClick=${() => { overlay.value = "palette"; }}><span>go to …</span><kbd>Ctrl K</kbd></button>
    <button type="button" class="button quiet live" data-live=${state} title="pause or resume live updates (p)" onClick=${togglePause}><i aria-hidden="true"></i><span role="status">${LIVE_WORDS[state] || state}</span></button>
    <button type="button" class="button quiet hide-narrow" title="times relative or by the clock (c)" aria-pressed=${isAbsolute.value} aria-label="times by the clock" onClick=${switchTimes}>${isAbsolute.value ? "clock" : "ago"}</button>
    <button type="button" class="button quiet" title="light or dark (t)" aria-label="light or dark" onClick=${switchTheme}>${theme.value === "dark" ? "☾" : "☀"}</button>
    <button type="button" class="button quiet help-button" title="keys (?)" aria-label="keys" onClick=${() => { overlay.value = "help"; }}>?</button>
    ${me.value?.is_token && html`<button type="button" class="button quiet" title=${`logged in as ${me.value.name}: ${me.value.scopes.join(", ")}`} onClick=${logout}>log out</button>`}
  </div>`;
}

function Side({ overview }) {
  const { path, query } = place.value;
  const items = pages.filter((one) => one.nav).sort((left, right) => left.nav.order - right.nav.order);
  return html`<ul>
    ${items.map((one) => {
      const isOn = one.path === "/" ? path === "/" : path === one.path || path.startsWith(`${one.path}/`);
      const badge = overview && one.nav.badge?.(overview);
      return html`<li key=${one.path}>
        <a href=${one.path} aria-current=${isOn ? "page" : undefined}>${one.nav.label}${badge && html`<span class="count number" data-tone=${badge.tone}>${badge.text}</span>`}</a>
        ${one.path === "/tasks" && html`<${States} counts=${overview?.tasks} chosen=${path === "/tasks" ? query.state : null} />`}
      </li>`;
    })}
  </ul>
  ${me.value && !me.value.actions.includes("submit") && html`<p class="note">read-only token</p>`}`;
}

const States = ({ counts, chosen }) => html`<ul class="states" aria-label="tasks by state">
  ${TASK_STATES.map((state) => html`<li key=${state}><a href=${link("/tasks", { state })} aria-current=${chosen === state ? "true" : undefined}>
    <${Dot} state=${state} />${state}<span class=${`count number ${counts?.[state] ? "" : "faint"}`}>${short(counts?.[state] ?? null)}</span></a></li>`)}
</ul>`;
