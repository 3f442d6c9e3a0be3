// The text of a definition, and the difference between two. Pure functions.

const PLAIN = /^[A-Za-z_][\w .()<>=+*/?-]*$/;
const WORDS = /^(true|false|null|yes|no|on|off|y|n|~)$/i;

/** JSON as YAML: one line a value, in the order it came. */
export function yamlOf(value, depth = 0) {
  const pad = "  ".repeat(depth);
  if (value === null || typeof value !== "object") return scalar(value);
  const entries = Array.isArray(value) ? value.map((one) => ["-", one]) : Object.entries(value).map(([key, one]) => [`${scalar(key)}:`, one]);
  if (!entries.length) return Array.isArray(value) ? "[]" : "{}";
  return entries.map(([mark, one]) => {
    const isNested = one !== null && typeof one === "object" && Object.keys(one).length > 0;
    if (!isNested) return `${pad}${mark} ${yamlOf(one)}`;
    // The first line of what a dash stands before goes beside it.
    return mark === "-" && !Array.isArray(one) ? `${pad}- ${yamlOf(one, depth + 1).trimStart()}` : `${pad}${mark}\n${yamlOf(one, depth + 1)}`;
  }).join("\n");
}

function scalar(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  return PLAIN.test(value) && !WORDS.test(value) && !value.endsWith(" ") && !value.includes(": ") && !value.includes(" #") ? value : JSON.stringify(value);
}

const MOST_CELLS = 4_000_000; // of the table below; texts that need more are shown one after the other

/** Lines of two texts: [{ kind: "same" | "old" | "new", text }], by their longest common part. */
export function diff(before, after) {
  const old = before.split("\n"), fresh = after.split("\n");
  let start = 0, end = 0;
  while (start < Math.min(old.length, fresh.length) && old[start] === fresh[start]) start += 1;
  while (end < Math.min(old.length, fresh.length) - start && old.at(-1 - end) === fresh.at(-1 - end)) end += 1;
  const left = old.slice(start, old.length - end), right = fresh.slice(start, fresh.length - end);
  const same = (lines) => lines.map((text) => ({ kind: "same", text }));
  return [...same(old.slice(0, start)), ...middle(left, right), ...same(old.slice(old.length - end))];
}

function middle(left, right) {
  const removed = left.map((text) => ({ kind: "old", text })), added = right.map((text) => ({ kind: "new", text }));
  if (!left.length || !right.length || left.length * right.length > MOST_CELLS) return [...removed, ...added];
  const width = right.length + 1;
  const longest = new Uint16Array((left.length + 1) * width);
  for (let row = left.length - 1; row >= 0; row -= 1) {
    for (let column = right.length - 1; column >= 0; column -= 1) {
      longest[row * width + column] = left[row] === right[column]
        ? longest[(row + 1) * width + column + 1] + 1
        : Math.max(longest[(row + 1) * width + column], longest[row * width + column + 1]);
    }
  }
  const lines = [];
  let row = 0, column = 0;
  while (row < left.length && column < right.length) {
    if (left[row] === right[column]) { lines.push({ kind: "same", text: left[row] }); row += 1; column += 1; }
    else if (longest[(row + 1) * width + column] >= longest[row * width + column + 1]) { lines.push(removed[row]); row += 1; }
    else { lines.push(added[column]); column += 1; }
  }
  return [...lines, ...removed.slice(row), ...added.slice(column)];
}

/** Long stretches without a change are folded to one line. */
export function folded(lines, around = 4) {
  const kept = [];
  for (let at = 0; at < lines.length; at += 1) {
    const isNear = lines.slice(Math.max(0, at - around), at + around + 1).some((one) => one.kind !== "same");
    if (isNear) kept.push(lines[at]);
    else if (kept.at(-1)?.kind === "gap") kept.at(-1).count += 1;
    else kept.push({ kind: "gap", count: 1, text: "" });
  }
  return kept;
}
