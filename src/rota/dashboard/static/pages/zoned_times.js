// Times as people write them in a form, by the clock of a time zone. Pure functions.

/** What the clock of a zone shows at a moment, as if it were the clock of UTC. */
const shown = (ms, timeZone) => Date.parse(`${new Date(ms).toLocaleString("sv-SE", { timeZone }).replace(" ", "T")}Z`);

/** The moment at which the clock of a zone shows this; of two, the one that the offset before it gives. */
function moment(clock, timeZone) {
  let at = clock;
  for (let turn = 0; turn < 2; turn += 1) at = clock - (shown(at, timeZone) - at);
  return at;
}

/** `2027-01-15 03:00` by the clock of the zone, or with an offset of its own, as Unix milliseconds. */
export function readTime(text, timeZone, field) {
  const written = text.trim().replace(" ", "T");
  const hasOffset = /(Z|[+-]\d\d:?\d\d)$/.test(written) && written.includes("T");
  const clock = Date.parse(hasOffset ? written : `${written}${written.includes("T") ? "" : "T00:00"}Z`);
  if (Number.isNaN(clock)) throw new Error(`${field}: "${text.trim()}" is not a time such as 2027-01-15 03:00`);
  try {
    return hasOffset ? clock : moment(clock, timeZone);
  } catch {
    throw new Error(`timezone: this browser does not know ${timeZone}; write times as 2027-01-15T03:00Z`);
  }
}

/** A moment as `readTime` reads it; in UTC where the clock of the zone shows it twice. */
export function writeTime(ms, timeZone) {
  try {
    const written = new Date(ms).toLocaleString("sv-SE", { timeZone });
    if (readTime(written, timeZone, "") === ms) return written.replace(/:00$/, "");
  } catch { /* a zone that this browser does not know */ }
  return new Date(ms).toISOString();
}

export const timeZones = () => ["UTC", ...(Intl.supportedValuesOf?.("timeZone") || []).filter((name) => name !== "UTC")];
