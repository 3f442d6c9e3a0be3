"""Checks one definition, and lists everything that is wrong with it.

As a program it is the child process that checks one large definition: a `Text` on stdin, a
`Checked` on stdout. The child has a low priority and limits on its memory and time.
"""

import os
import re
import sys

import msgspec
import yaml  # type: ignore[import-untyped]  # has none
from msgspec import Struct

from rota.core import limits
from rota.core.workflow.definition.model import Definition, DefinitionProblem, canonical
from rota.core.workflow.definition.parser import check_text

MOST_PROBLEMS = 1_000  # listed of one definition
NICENESS = 10
MOST_MEMORY = 1024 * 1024 * 1024  # of addresses, most of which are the interpreter's own
_NAMELESS = re.compile(r"missing required field `name`")


class Text(Struct, frozen=True):
    """The text of a definition, and the name for a definition without one."""

    content: str
    name: str | None = None


class Checked(Struct, frozen=True):
    """A definition as far as it could be read, its problems and warnings."""

    definition: Definition | None
    problems: list[DefinitionProblem]
    warnings: list[DefinitionProblem] = []


def check(text: Text) -> Checked:
    checked = _checked(text.content)
    is_nameless = any(not one.path and _NAMELESS.search(one.message) for one in checked.problems)
    if text.name is not None and is_nameless:
        checked = _checked(_named(text.content, text.name))
    return checked


def _checked(content: str) -> Checked:
    try:
        checked = check_text(content)
        if checked.definition is not None:
            canonical(checked.definition)
    except (UnicodeError, yaml.YAMLError):
        # By escapes, a text can have halves of characters in it that no encoding has.
        message = "it contains characters that are not valid text"
        return Checked(None, [DefinitionProblem(path="", code="unreadable", message=message)])
    return Checked(
        checked.definition, checked.problems[:MOST_PROBLEMS], checked.warnings[:MOST_PROBLEMS]
    )


def _named(content: str, name: str) -> str:
    """The text with a name added, and every line at its old number."""
    quoted = msgspec.json.encode(name).decode()
    if content.lstrip().startswith("{"):
        return content.replace("{", f'{{"name": {quoted}, ', 1)
    return f"{content}\nname: {quoted}\n"


# --- the child process ----------------------------------------------------------------------------


def main() -> None:
    _bound()
    text = msgspec.json.decode(sys.stdin.buffer.read(), type=Text)
    sys.stdout.buffer.write(msgspec.json.encode(check(text)))


def _bound() -> None:
    """Limit the process itself, in case the coordinator is not there to end it."""
    try:
        import resource  # noqa: PLC0415 - there is none on Windows
    except ImportError:
        return
    os.nice(NICENESS)
    seconds = 2 * limits.DEFINITION_TIMEOUT_MS // 1000
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
