"""Where does a workflow's definition come from, and how is it written down again?

From a file, from YAML or JSON text, from Python: it becomes the same value. Written as YAML and
read again it is that value still.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml  # type: ignore[import-untyped]  # has none

from rota.core.workflow.definition import Definition
from rota.core.workflow.problems import Problem
from rota.core.workflow.reading import convert, read
from rota.errors import Invalid, InvalidWorkflow

SUFFIXES = (".yaml", ".yml", ".json")
YAML_WIDTH = 100
PROBLEMS_TOLD = 5  # in the text of an error; its facts have them all

Source = Definition | Path | str | Mapping[str, Any]


def is_name(source: object) -> bool:
    """Whether a text is a workflow's name, rather than a file's or a definition itself."""
    if not isinstance(source, str) or "\n" in source or source.lstrip().startswith("{"):
        return False
    return not source.endswith(SUFFIXES)


def definition_of(source: Source) -> Definition:
    """The definition in a file, a text or a document; raises `InvalidWorkflow` if it is not one."""
    match source:
        case Definition():
            return source
        case Path():
            return checked(*read(_content(source)), source=str(source))
        case str() if "\n" in source or source.lstrip().startswith("{"):
            return checked(*read(source))
        case str():
            return checked(*read(_content(Path(source))), source=source)
        case _:
            return checked(*convert(msgspec.to_builtins(source)))


def checked(
    definition: Definition | None, problems: Sequence[Problem], *, source: str | None = None
) -> Definition:
    """The definition, if nothing is wrong with it."""
    if definition is None or problems:
        raise invalid(problems, source or (definition and definition.name) or "the workflow")
    return definition


def invalid(problems: Sequence[Problem], what: str) -> InvalidWorkflow:
    told = [told_problem(one) for one in problems[:PROBLEMS_TOLD]]
    if len(problems) > PROBLEMS_TOLD:
        told.append(f"and {len(problems) - PROBLEMS_TOLD} more")
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    detail = f"{what} has {count}: {'; '.join(told)}"
    return InvalidWorkflow(detail, problems=[msgspec.to_builtins(one) for one in problems])


def told_problem(one: Problem) -> str:
    place = f"{one.path}: " if one.path else ""
    line = "" if one.line is None else f"line {one.line}: "
    return f"{line}{place}{one.message}"


def yaml_of(definition: Definition) -> str:
    """The definition as YAML, as short as it goes, its nodes in the order a run comes to them."""
    document = msgspec.to_builtins(definition)
    document["nodes"] = {name: document["nodes"][name] for name in nodes_in_order(definition)}
    text: str = yaml.dump(
        document,
        Dumper=_Dumper,
        default_flow_style=None,
        sort_keys=False,
        allow_unicode=True,
        width=YAML_WIDTH,
    )
    return text


def nodes_in_order(definition: Definition) -> list[str]:
    """The nodes as a run comes to them."""
    found: dict[str, None] = {}
    waiting = deque([definition.initial_node])
    while waiting:
        node = waiting.popleft()
        if node in definition.nodes and node not in found:
            found[node] = None
            waiting += [one.to for one in definition.transitions if one.from_ == node]
            waiting += [route.to for route in definition.nodes[node].on_error]
    return [*found, *(name for name in definition.nodes if name not in found)]


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # as above
    """Writes what stands twice twice: the reader takes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - yaml's signature
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:  # noqa: ARG002, FBT001, FBT002 - as above
        return super().increase_indent(flow, indentless=False)


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    # Other styles lose characters that count as line breaks in YAML alone.
    style = None if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text_node)


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise Invalid(f"{path} is not UTF-8 text") from None
