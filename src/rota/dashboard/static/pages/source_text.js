// The source of a function with line numbers and marked lines, and the difference between two texts.
import { html, useEffect, useMemo, useRef } from "../lib.js";
import { whole } from "../format.js";
import { Copy, Empty } from "../ui.js";
import { diff, folded } from "./workflow_text.js";

const MOST_LINES = 2_000; // painted; the text to copy is whole
const MOST_CHARACTERS = 400; // of one line

const clipped = (line) => (line.length > MOST_CHARACTERS ? `${line.slice(0, MOST_CHARACTERS)}…` : line);

/** marks: line number → words about it; shown: the line to scroll to. Lines count from first_line. */
export function Source({ code, marks = new Map(), shown = null, kind = "is-at", label = "source" }) {
  const box = useRef(null);
  const first = code.first_line || 1;
  const lines = useMemo(() => code.source.trimEnd().split("\n"), [code.source]);
  useEffect(() => {
    const line = shown === null ? null : box.current?.querySelector(`[data-line="${Number(shown)}"]`);
    // Only the text scrolls: the page stays where it is.
    if (line) box.current.scrollTop += line.getBoundingClientRect().top - box.current.getBoundingClientRect().top - box.current.clientHeight / 3;
  }, [shown, code.source]);
  return html`<div class="source-head"><span class="faint">${code.module}${code.module && ", "}line ${first}</span><${Copy} text=${code.source} label="copy the source" /></div>
    <div class="text source" ref=${box} tabindex="0" role="group" aria-label=${label}>
      ${lines.slice(0, MOST_LINES).map((line, at) => {
        const words = marks.get(first + at);
        return html`<div key=${at} data-line=${first + at} class=${words ? kind : shown === first + at ? "is-shown" : ""}><i>${first + at}</i>${clipped(line)}${words && html`<span class="mark-words">${words}</span>`}</div>`;
      })}
      ${lines.length > MOST_LINES && html`<div class="is-gap">··· ${whole(lines.length - MOST_LINES)} more lines ···</div>`}
    </div>`;
}

const MARKS = { old: "−", new: "+", same: " " };

/** The difference between two texts, line by line, without the long stretches that are the same. */
export function Difference({ before, after }) {
  const lines = useMemo(() => folded(diff(before, after)), [before, after]);
  if (lines.every((one) => one.kind === "gap")) return html`<${Empty}>Nothing.<//>`;
  return html`<div class="text" tabindex="0" role="group" aria-label="difference">
    ${lines.slice(0, MOST_LINES).map((one, at) => (one.kind === "gap" ? html`<div key=${at} class="is-gap">··· ${one.count} lines ···</div>` : html`<div key=${at} class=${`is-${one.kind}`}><i>${MARKS[one.kind]}</i>${clipped(one.text)}</div>`))}
    ${lines.length > MOST_LINES && html`<div class="is-gap">··· ${whole(lines.length - MOST_LINES)} more lines ···</div>`}
  </div>`;
}

/** The text of one line of a source, or null: it is elsewhere, such as in a helper of the function. */
export function lineOf(code, number) {
  if (!code || number === null || number === undefined) return null;
  const line = code.source.split("\n")[number - (code.first_line || 1)];
  return line === undefined ? null : clipped(line.trim());
}
