// The event stream of the whole dashboard. It is closed while the tab is hidden.
//
// Read by hand instead of by EventSource, which needs to be told of each type of event in advance
// and cannot see that a login is needed. When the stream cannot be had, pages still poll.
import { signal, useEffect } from "./lib.js";
import { needsLogin } from "./api.js";
import { root } from "./root.js";

export const liveState = signal("connecting"); // connecting | live | polling | paused
const listeners = new Set();
let lastId = null;
let controller = null;
let isPausedByHand = false;
let retryMs = 1000;
let timer = null;

export function onEvent(callback) {
  listeners.add(callback);
  return () => listeners.delete(callback);
}

export function useEvents(callback, dependencies = []) {
  useEffect(() => onEvent(callback), dependencies);
}

const isWanted = () => !document.hidden && !isPausedByHand && !needsLogin.value;

export function startLive() {
  document.addEventListener("visibilitychange", update);
  needsLogin.subscribe(update);
  update();
}

export function togglePause() {
  isPausedByHand = !isPausedByHand;
  update();
}

export const isPaused = () => isPausedByHand || document.hidden;

function update() {
  clearTimeout(timer);
  if (isWanted()) {
    if (!controller) connect();
  } else {
    controller?.abort();
    controller = null;
    liveState.value = "paused";
  }
}

async function connect() {
  const own = new AbortController();
  controller = own;
  if (liveState.value !== "polling") liveState.value = "connecting";
  try {
    const headers = { accept: "text/event-stream" };
    if (lastId !== null) headers["last-event-id"] = lastId;
    const answer = await fetch(`${root}/api/events`, { headers, signal: own.signal, credentials: "same-origin", cache: "no-store" });
    if (answer.status === 401) needsLogin.value = true;
    if (answer.status === 400) lastId = null; // a number of another store
    if (!answer.ok || !answer.headers.get("content-type")?.startsWith("text/event-stream")) throw new Error("no stream");
    liveState.value = "live";
    retryMs = 1000;
    await read(answer.body.getReader());
  } catch (error) {
    if (own.signal.aborted) return;
    retryMs = Math.min(retryMs * 2, 15_000);
  }
  if (controller !== own) return;
  controller = null;
  if (!isWanted()) return;
  liveState.value = "polling";
  timer = setTimeout(update, retryMs);
}

async function read(reader) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) tell(block);
  }
}

function tell(block) {
  let type = "message", data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) lastId = line.slice(4);
    else if (line.startsWith("event: ")) type = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (!data || type === "end") return;
  let event;
  try { event = JSON.parse(data); } catch { return; }
  for (const listener of listeners) listener({ ...event, type });
}
