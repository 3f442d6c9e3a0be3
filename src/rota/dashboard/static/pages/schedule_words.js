// The words and addresses of schedules, and times by the clock of a zone. Pure functions.
import { absolute } from "../format.js";
import { segment } from "../router.js";

export const MISSED = { last: "the last missed time fires", skip: "missed times do not fire", all: "all missed times fire" };
export const OVERLAPS = { skip: "skip the time", queue_one: "one firing waits", queue_all: "all firings wait", cancel_running: "cancel what runs", allow: "fire anyway" };

export const addressOf = (name) => `/schedules/${segment(name)}`;

/** `Fri 2027-01-15 03:00:00` by the clock of a time zone. */
export function zoned(ms, timeZone) {
  try {
    return `${new Date(ms).toLocaleDateString("en-US", { weekday: "short", timeZone })} ${new Date(ms).toLocaleString("sv-SE", { timeZone })}`;
  } catch { // a zone that this browser does not know
    return absolute(ms);
  }
}
