"""The project's pages: their links, headings, code blocks and command lines."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SHELLS = ("", "bash", "sh", "console", "ini")  # languages of blocks that hold command lines
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_END_OF_COMMAND = re.compile(r"^(?:[|;&<>]+|2>.*|#.*)$")


class Block(NamedTuple):
    language: str
    text: str
    line: int


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = [
        Block(
            match[2], re.sub(f"^{match[1]}", "", match[3], flags=re.MULTILINE), _line(text, match)
        )
        for match in _FENCE.finditer(text)
    ]
    return [block for block in found if block.language in languages]


def _line(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start()) + 1


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def spans(page: Path) -> list[str]:
    """What stands as code inside the sentences of a page."""
    return _SPAN.findall(prose(page))


def relative_links(page: Path) -> list[str]:
    links = _LINK.findall(_SPAN.sub("", prose(page)))
    return [link for link in links if not re.match(r"[a-z]+:", link)]


def anchors(page: Path) -> set[str]:
    """What the headings of a page can be linked by."""
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(prose(page)))
    return {text.strip().replace(" ", "-") for text in kept}


def command_lines(page: Path) -> Iterator[list[str]]:
    """The words of every `rota …` on a page, in its shell blocks and in its text."""
    lines = [line for block in blocks(page, *SHELLS) for line in block.text.splitlines()]
    within = [span for span in spans(page) if span.startswith("rota ")]
    for line in [*lines, *within]:
        yield from _commands_in(line)


def _commands_in(line: str) -> Iterator[list[str]]:
    words = _words(line)
    for place, word in enumerate(words):
        if word == "rota" or word.endswith("/rota"):
            command: list[str] = []
            for following in words[place + 1 :]:
                if _END_OF_COMMAND.match(following):
                    break
                command.append(following)
            yield command


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=False)
    except ValueError:  # a quote that is closed on a later line
        return line.split()
