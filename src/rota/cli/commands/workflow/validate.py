"""`rota validate`: every problem of a definition, each with its line."""

import click
from msgspec import Struct

from rota.cli.inputs import file_text
from rota.cli.options import json_flag
from rota.cli.render.output import ExitCode, Refusal, show, visible
from rota.core.workflow.definition.model import Definition, DefinitionProblem
from rota.core.workflow.definition.parser import read


class ValidationResult(Struct, frozen=True, kw_only=True):
    """As the coordinator answers it."""

    ok: bool
    problems: list[DefinitionProblem]


@click.command()
@click.argument("file")
@json_flag
def validate(file: str, *, as_json: bool) -> None:
    """Find every problem of a workflow definition.

    FILE is YAML or JSON; - reads stdin. Needs no coordinator. Exit code 1 when there are problems.
    """
    definition, problems = read(file_text(file))
    result = ValidationResult(ok=definition is not None and not problems, problems=problems)
    show(result, as_json=as_json, render=lambda one: _lines(file, one, definition))
    if not result.ok:
        click.get_current_context().exit(ExitCode.FAILED)


def valid_definition(file: str) -> Definition:
    """Read the definition in a file; its problems are printed on stderr, and raise an error."""
    definition, problems = read(file_text(file))
    if definition is not None and not problems:
        return definition
    for one in problems:
        click.echo(problem_line(file, one), err=True)
    text = f"{file} has {counted(len(problems), 'problem')}"
    raise Refusal(text, code="invalid_workflow", exit_code=ExitCode.FAILED)


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def problem_line(file: str, problem: DefinitionProblem) -> str:
    """A problem as `file:line: …`, which editors can open."""
    place = file if problem.line is None else f"{file}:{problem.line}"
    path = f"{problem.path}: " if problem.path else ""
    return visible(f"{place}: {path}{problem.message} ({problem.code})")


def _lines(file: str, result: ValidationResult, definition: Definition | None) -> str:
    if result.ok and definition is not None:
        nodes = counted(len(definition.nodes), "node")
        transitions = counted(len(definition.transitions), "transition")
        return visible(f"{file}: {definition.name} is valid: {nodes}, {transitions}")
    return "\n".join(problem_line(file, one) for one in result.problems)
