// Numbers, sizes and times as people read them. Pure functions.

const STEPS = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "m"], [1000, "s"]];

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 0) ms = 0;
  if (ms < 1) return "0 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  for (let at = 0; at < STEPS.length; at += 1) {
    const [size, unit] = STEPS[at];
    if (ms < size) continue;
    const whole = Math.floor(ms / size);
    const next = STEPS[at + 1];
    const rest = next && whole < 10 ? Math.floor((ms % size) / next[0]) : 0;
    return rest ? `${whole} ${unit} ${rest} ${next[1]}` : `${whole} ${unit}`;
  }
  return "0 s";
}

export function relative(atMs, nowMs) {
  const away = nowMs - atMs;
  if (Math.abs(away) < 1000) return "now";
  // Whole seconds only: a tenth that never moves looks broken.
  const text = duration(Math.max(10_000, Math.abs(away)) === Math.abs(away) ? Math.abs(away) : Math.floor(Math.abs(away) / 1000) * 1000).replace(".0 s", " s");
  return away > 0 ? `${text} ago` : `in ${text}`;
}

export function absolute(ms) {
  const at = new Date(ms);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const offset = -at.getTimezoneOffset();
  const zone = `UTC${offset < 0 ? "−" : "+"}${two(Math.floor(Math.abs(offset) / 60))}:${two(Math.abs(offset) % 60)}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")} ${zone}`;
}

export const clockTime = (ms) => absolute(ms).slice(11, 23);

const group = new Intl.NumberFormat("en-US");
export const whole = (number) => (number === null || number === undefined ? "–" : group.format(Math.round(number)));

export function short(number) {
  if (number === null || number === undefined) return "–";
  if (number < 10_000) return group.format(number);
  if (number < 1_000_000) return `${(number / 1000).toFixed(number < 100_000 ? 1 : 0)}k`;
  return `${(number / 1_000_000).toFixed(number < 10_000_000 ? 2 : 1)}M`;
}

export function rate(perSecond) {
  if (!perSecond) return "0";
  if (perSecond < 0.1) return perSecond.toFixed(2);
  return perSecond < 10 ? perSecond.toFixed(1) : short(Math.round(perSecond));
}

export function bytes(count) {
  if (count === null || count === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at += 1; }
  return `${at && count < 10 ? count.toFixed(1) : Math.round(count)} ${units[at]}`;
}

export const plural = (count, word, many = `${word}s`) => `${whole(count)} ${count === 1 ? word : many}`;

/** A text as one word of a POSIX shell; control characters never reach a terminal as they are. */
export function shellWord(text) {
  if (/^[\w@%+=:,./-]+$/.test(text)) return text;
  if (/[\u0000-\u001f\u007f-\u009f]/.test(text)) {
    const escaped = text.replace(/[\\']/g, "\\$&")
      .replace(/[\u0000-\u001f\u007f-\u009f]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
    return `$'${escaped}'`;
  }
  return `'${text.replaceAll("'", "'\\''")}'`;
}
