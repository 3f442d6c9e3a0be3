// The form that fires times of a schedule that have passed: it counts them first.
import { post } from "../api.js";
import { FormDialog } from "../dialog.js";
import { now } from "../clock.js";
import { plural } from "../format.js";
import { html, useState } from "../lib.js";
import { OVERLAPS } from "./schedule_words.js";
import { readTime, writeTime } from "./zoned_times.js";

const DAY_MS = 86_400_000;

export function BackfillForm({ schedule, path, close, reload }) {
  const [counted, setCounted] = useState(null); // null: not counted with what the fields have now
  const zone = schedule.timezone;
  const [first] = useState(() => Math.floor(now.value / 60_000) * 60_000);
  const submit = async (fields) => {
    const wanted = { from_ms: readTime(fields.from, zone, "from"), to_ms: readTime(fields.to, zone, "to"), overlap: fields.overlap || undefined };
    if (wanted.from_ms >= wanted.to_ms) throw new Error("from: it must be before the end");
    if (counted === null) {
      setCounted((await post(`${path}/backfill`, { ...wanted, dry_run: true })).count);
      return false;
    }
    const { count } = await post(`${path}/backfill`, wanted);
    reload();
    return `${schedule.name}: ${plural(count, "time")} fired`;
  };
  const label = counted === null ? "count the times" : `fire ${plural(counted, "time")}`;
  return html`<${FormDialog} title=${`Backfill ${schedule.name}`} label=${label} isOff=${counted === 0} submit=${submit} close=${close}>
    <div class="form" onInput=${() => setCounted(null)}>
      <div class="beside two">
        <label class="field"><span>from, by the clock of ${zone}</span><input name="from" required autocomplete="off" defaultValue=${writeTime(first - DAY_MS, zone)} /></label>
        <label class="field"><span>until, this time not included</span><input name="to" required autocomplete="off" defaultValue=${writeTime(first, zone)} /></label></div>
      <label class="field"><span>while an earlier one has not ended</span><select name="overlap"><option value="">as the schedule has it: ${OVERLAPS[schedule.overlap]}</option>${Object.entries(OVERLAPS).map(([value, text]) => html`<option key=${value} value=${value}>${text}</option>`)}</select></label>
      <p class="hint" role="status">${counted === null ? "Count the times first. Times in the future do not count." : counted === 0 ? "The schedule has no time in this range." : `The schedule has ${plural(counted, "time")} in this range. They fire now, the oldest first; one that has fired already is not repeated.`}</p>
    </div><//>`;
}
