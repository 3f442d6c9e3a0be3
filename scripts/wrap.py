"""Wrap the paragraphs and list items of Markdown pages at 100 columns.

    python scripts/wrap.py docs/tutorial.md …

Headings, tables, code blocks, pictures and comments stay as they are, and neither a link nor a code
span is broken.
"""

import re
import sys
import textwrap
from pathlib import Path

WIDTH = 100
_FENCE = re.compile(r"\s*(```+|~~~+)")
_ITEM = re.compile(r"(\s*)([-*+]|\d+[.)])\s+")
_AS_IT_IS = re.compile(r"\s*$|#|\s*\||<|\s*!\[|---|    ")
_WHOLE = re.compile(r"`[^`]+`|\[[^\]]*\]\([^)]*\)")
_HARD_SPACE = "\0"


def wrapped(page: str) -> str:
    """The page with its text wrapped."""
    lines: list[str] = []
    block: list[str] = []
    indents = ("", "")
    fence: str | None = None

    def end_block() -> None:
        lines.extend(_filled(" ".join(block), *indents))
        block.clear()

    for line in page.split("\n"):
        mark = _FENCE.match(line)
        item = _ITEM.match(line)
        if fence is not None:
            lines.append(line)
            if mark and mark[1].startswith(fence):
                fence = None
        elif mark:
            end_block()
            lines.append(line)
            fence = mark[1]
        elif item:
            end_block()
            first = f"{item[1]}{item[2]} "
            indents = (first, " " * len(first))
            block.append(line[item.end() :].strip())
        elif _AS_IT_IS.match(line) and not (block and line.startswith(" ") and line.strip()):
            end_block()
            lines.append(line)
        else:
            if not block:
                indent = line[: len(line) - len(line.lstrip())]
                indents = (indent, indent)
            block.append(line.strip())
    end_block()
    return "\n".join(lines)


def _filled(text: str, first: str, following: str) -> list[str]:
    whole = _WHOLE.sub(lambda match: match[0].replace(" ", _HARD_SPACE), text)
    filled = textwrap.wrap(
        whole,
        WIDTH,
        initial_indent=first,
        subsequent_indent=following,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_HARD_SPACE, " ") for line in filled]


def main() -> None:
    for name in sys.argv[1:]:
        file = Path(name)
        before = file.read_text(encoding="utf-8")
        after = wrapped(before)
        assert after.split() == before.split(), f"{name}: wrapping would change more than spaces"
        if after != before:
            file.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
