"""Reads workflow definitions from files, texts and Python values, and writes them as YAML.

Every source gives the same value, and a definition that is written and read again is unchanged.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml  # type: ignore[import-untyped]  # has none

from rota.core.workflow.definition.model import Definition, DefinitionProblem
from rota.core.workflow.definition.parser import convert, needs_quotes, read
from rota.errors import Invalid, InvalidWorkflow

SUFFIXES = (".yaml", ".yml", ".json")
YAML_WIDTH = 100
PROBLEMS_SHOWN = 5  # in the text of an error; its facts have all of them

Source = Definition | Path | str | Mapping[str, Any]


def is_name(source: object) -> bool:
    """Whether a text is the name of a workflow, not a file and not a definition."""
    if not isinstance(source, str) or "\n" in source or source.lstrip().startswith("{"):
        return False
    return not source.endswith(SUFFIXES)


def definition_of(source: Source) -> Definition:
    """The definition in a file, a text or a document; raises `InvalidWorkflow` for its problems."""
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
    definition: Definition | None,
    problems: Sequence[DefinitionProblem],
    *,
    source: str | None = None,
) -> Definition:
    """The definition, if it has no problems."""
    if definition is None or problems:
        raise invalid(problems, source or (definition and definition.name) or "the workflow")
    return definition


def invalid(problems: Sequence[DefinitionProblem], what: str) -> InvalidWorkflow:
    shown = [problem_text(one) for one in problems[:PROBLEMS_SHOWN]]
    if len(problems) > PROBLEMS_SHOWN:
        shown.append(f"and {len(problems) - PROBLEMS_SHOWN} more")
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    detail = f"{what} has {count}: {'; '.join(shown)}"
    return InvalidWorkflow(detail, problems=[msgspec.to_builtins(one) for one in problems])


def problem_text(one: DefinitionProblem) -> str:
    place = f"{one.path}: " if one.path else ""
    line = "" if one.line is None else f"line {one.line}: "
    return f"{line}{place}{one.message}"


def yaml_of(definition: Definition) -> str:
    """The definition as short YAML, its nodes in the order in which a run reaches them."""
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
    """The nodes in the order in which a run reaches them."""
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
    """Writes a repeated value again, because the parser accepts no aliases."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - yaml's signature
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:  # noqa: ARG002, FBT001, FBT002 - as above
        return super().increase_indent(flow, indentless=False)


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    # The other styles lose characters that are line breaks in YAML only. PyYAML itself quotes what
    # YAML 1.1 reads as another type; the parser reads YAML 1.2, where 1e5 is a number.
    style = None if text.isprintable() and not needs_quotes(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text_node)


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise Invalid(f"{path} is not UTF-8 text") from None
