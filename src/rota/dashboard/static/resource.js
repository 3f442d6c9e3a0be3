// Answers of the coordinator, kept up to date and shared by path. An answer that has not changed
// repaints nothing.
import { signal, useEffect } from "./lib.js";
import { getText, needsLogin, parse } from "./api.js";
import { isPaused, liveState, onEvent } from "./live.js";

const LEAST_GAP_MS = 700; // between two fetches of one path, however much happens
const POLL_MS = 2000; // when there is no stream
const ANSWER_MS = 15_000; // a coordinator that takes longer is taken for unreachable
const KEPT = 60; // answers remembered of pages that were left

const entries = new Map();

class Entry {
  constructor(path) {
    this.path = path;
    this.state = signal({ data: null, problem: null, isLoading: true });
    this.users = new Map(); // each with its options
    this.text = null;
    this.fetchedAt = 0;
    this.timer = null;
    this.isFetching = false;
    this.isWanted = false;
  }

  get every() {
    const wishes = [...this.users.values()].map((one) => one.every).filter(Boolean);
    const wished = wishes.length ? Math.min(...wishes) : Infinity;
    return liveState.value === "live" ? wished : Math.min(wished, POLL_MS);
  }

  listensTo(type) {
    return [...this.users.values()].some((one) => one.on?.some((prefix) => type.startsWith(prefix)));
  }

  soon() {
    if (this.isFetching) { this.isWanted = true; return; }
    this.at(Math.max(0, this.fetchedAt + LEAST_GAP_MS - Date.now()));
  }

  at(delay) {
    const due = Date.now() + delay;
    if (this.timer && this.due <= due) return;
    clearTimeout(this.timer);
    this.due = due;
    this.timer = setTimeout(() => { this.timer = null; this.fetch(); }, delay);
  }

  async fetch() {
    if (this.isFetching || !this.users.size) return;
    // `wakeAll` is called when the tab is shown again. A hidden tab asks once, whatever the answer. A
    // tab that is shown and paused asks again after a refusal, until there is something to show.
    if (isPaused() && (document.hidden ? this.fetchedAt : this.text !== null)) return;
    this.isFetching = true;
    this.isWanted = false;
    try {
      const text = await answered(this.path);
      if (text !== this.text || this.state.value.problem) {
        this.text = text;
        this.state.value = { data: parse(text), problem: null, isLoading: false };
      }
    } catch (problem) {
      // What was known stays on the page, with the problem beside it.
      this.state.value = { ...this.state.value, problem, isLoading: false };
    } finally {
      this.isFetching = false;
      this.fetchedAt = Date.now();
      if (this.users.size) {
        if (this.isWanted) this.soon();
        else if (this.every < Infinity) this.at(this.every);
      }
    }
  }
}

/** The answer, or a problem if none comes in time: what hangs must not look as if all were well. */
async function answered(path) {
  const aborting = new AbortController();
  const timer = setTimeout(() => aborting.abort(new DOMException("no answer", "TimeoutError")), ANSWER_MS);
  try { return await getText(path, { signal: aborting.signal }); } finally { clearTimeout(timer); }
}

function entryOf(path) {
  let entry = entries.get(path);
  if (!entry) {
    entry = new Entry(path);
    entries.set(path, entry);
    for (const [key, old] of entries) {
      if (entries.size <= KEPT) break;
      if (!old.users.size && old !== entry) entries.delete(key);
    }
  }
  return entry;
}

const NOTHING = { data: null, problem: null, isLoading: false, reload: () => {} };

export function useResource(path, options = {}) {
  const entry = path ? entryOf(path) : null;
  useEffect(() => {
    if (!entry) return undefined;
    const user = {};
    entry.users.set(user, options);
    if (entry.text === null || Date.now() - entry.fetchedAt > LEAST_GAP_MS) entry.at(0);
    else if (entry.every < Infinity) entry.at(entry.every);
    return () => {
      entry.users.delete(user);
      if (!entry.users.size) { clearTimeout(entry.timer); entry.timer = null; }
    };
  }, [path]);
  return entry ? { ...entry.state.value, reload: () => entry.at(0) } : NOTHING;
}

export function wakeAll() {
  for (const entry of entries.values()) if (entry.users.size) entry.at(0);
}

onEvent((event) => {
  for (const entry of entries.values()) if (entry.users.size && entry.listensTo(event.type)) entry.soon();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) wakeAll(); });
liveState.subscribe((state) => { if (state !== "paused") wakeAll(); });
needsLogin.subscribe((needed) => { if (!needed) wakeAll(); });
