"""`rota validate`: every problem of a definition, each with its line."""

from collections.abc import Iterator, Sequence

import click
from msgspec import Struct

from rota.cli.inputs import file_text
from rota.cli.options import json_flag
from rota.cli.render.output import ExitCode, Refusal, show, visible
from rota.core.workflow.definition.model import Definition, DefinitionProblem
from rota.core.workflow.definition.parser import check_text

SNIPPET_WIDTH = 120  # characters of a line that are shown


class ValidationResult(Struct, frozen=True, kw_only=True):
    """As the coordinator answers it."""

    ok: bool
    problems: list[DefinitionProblem]
    warnings: list[DefinitionProblem] = []


@click.command()
@click.argument("file")
@json_flag
def validate(file: str, *, as_json: bool) -> None:
    """Find every problem of a workflow definition.

    FILE is YAML or JSON; - reads stdin. Needs no coordinator. Exit code 1 when there are problems.
    Warnings name expressions that probably fail, and leave the exit code at 0.
    """
    text = file_text(file)
    checked = check_text(text)
    definition, problems = checked.definition, checked.problems
    result = ValidationResult(
        ok=definition is not None and not problems, problems=problems, warnings=checked.warnings
    )
    show(result, as_json=as_json, render=lambda one: _report(file, text, one, definition))
    if not result.ok:
        click.get_current_context().exit(ExitCode.FAILED)


def valid_definition(file: str) -> Definition:
    """Read the definition in a file; its problems are printed on stderr, and raise an error."""
    text = file_text(file)
    checked = check_text(text)
    for line in _all_lines(file, text, checked.problems, checked.warnings):
        click.echo(line, err=True)
    if checked.definition is not None and not checked.problems:
        return checked.definition
    message = f"{file} has {counted(len(checked.problems), 'problem')}"
    raise Refusal(message, code="invalid_workflow", exit_code=ExitCode.FAILED)


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def problem_line(file: str, problem: DefinitionProblem, *, prefix: str = "") -> str:
    """A problem as `file:line: …`, which editors can open."""
    place = file if problem.line is None else f"{file}:{problem.line}"
    path = f"{problem.path}: " if problem.path else ""
    return visible(f"{place}: {prefix}{path}{problem.message} ({problem.code})")


def _report(file: str, text: str, result: ValidationResult, definition: Definition | None) -> str:
    lines = list(_all_lines(file, text, result.problems, result.warnings))
    if result.ok and definition is not None:
        nodes = counted(len(definition.nodes), "node")
        transitions = counted(len(definition.transitions), "transition")
        lines.append(visible(f"{file}: {definition.name} is valid: {nodes}, {transitions}"))
    return "\n".join(lines)


def _all_lines(
    file: str,
    text: str,
    problems: Sequence[DefinitionProblem],
    warnings: Sequence[DefinitionProblem],
) -> Iterator[str]:
    source = text.splitlines()
    for one in problems:
        yield problem_line(file, one)
        yield from _snippet(source, one)
    for one in warnings:
        yield problem_line(file, one, prefix="warning: ")
        yield from _snippet(source, one)


def _snippet(source: Sequence[str], problem: DefinitionProblem) -> Iterator[str]:
    """The line of a problem, with a caret under its column."""
    if problem.line is None or problem.column is None or problem.line > len(source):
        return
    shown = source[problem.line - 1].replace("\t", " ")
    column = problem.column - 1
    start = max(0, column - SNIPPET_WIDTH // 2) if len(shown) > SNIPPET_WIDTH else 0
    margin = f"  {problem.line} | "
    yield visible(margin + shown[start : start + SNIPPET_WIDTH].rstrip())
    yield f"{' ' * (len(margin) - 2)}| {' ' * (column - start)}^"
