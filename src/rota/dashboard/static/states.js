// The colour of each state, the same in badges, bars, graphs and charts.

export const TASK_STATES = ["scheduled", "queued", "running", "succeeded", "failed", "cancelled"];
export const RUN_STATES = ["running", "paused", "completed", "failed", "cancelled", "timed_out"];

const TONES = {
  scheduled: "violet", queued: "amber", running: "blue", succeeded: "green", failed: "red", cancelled: "grey",
  paused: "slate", completed: "green", timed_out: "orange",
  pending: "violet", dispatched: "amber", executing: "blue",
  waiting_for_siblings: "teal", waiting_for_subworkflow: "teal", waiting_for_event: "teal",
  healthy: "green", degraded: "amber", unhealthy: "red",
  active: "green", draining: "violet", quarantined: "orange",
  open: "red", half_open: "amber", closed: "green",
  lost: "orange", released: "grey", snoozed: "violet",
  fired: "green", dropped: "orange", refused: "red",
  delivered: "green", waiting: "amber", failing: "red", disabled: "red",
};

export const tone = (state) => TONES[state] || "grey";

/** What a colour is at the moment, for canvases, which cannot use variables. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
