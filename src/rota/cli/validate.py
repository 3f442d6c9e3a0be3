"""Is a workflow's definition right? All that is wrong with it, each with its line."""

import click
from msgspec import Struct

from rota.cli.inputs import file_text
from rota.cli.options import json_flag
from rota.cli.output import ExitCode, Refusal, show, visible
from rota.core.workflow.definition import Definition
from rota.core.workflow.problems import Problem
from rota.core.workflow.reading import read


class Verdict(Struct, frozen=True, kw_only=True):
    """As the coordinator's own answer."""

    ok: bool
    problems: list[Problem]


@click.command()
@click.argument("file")
@json_flag
def validate(file: str, *, as_json: bool) -> None:
    """Find everything that is wrong with a workflow's definition.

    FILE is YAML or JSON; - reads stdin. Needs no coordinator. Exit code 1 when there are problems.
    """
    definition, problems = read(file_text(file))
    verdict = Verdict(ok=definition is not None and not problems, problems=problems)
    show(verdict, as_json=as_json, render=lambda one: _lines(file, one, definition))
    if not verdict.ok:
        click.get_current_context().exit(ExitCode.FAILED)


def valid_definition(file: str) -> Definition:
    """The definition in a file; one with problems is refused, all of them told on stderr."""
    definition, problems = read(file_text(file))
    if definition is not None and not problems:
        return definition
    for one in problems:
        click.echo(problem_line(file, one), err=True)
    text = f"{file} has {counted(len(problems), 'problem')}"
    raise Refusal(text, code="invalid_workflow", ends_with=ExitCode.FAILED)


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def problem_line(file: str, problem: Problem) -> str:
    """One line on a problem, in the form that editors jump by."""
    place = file if problem.line is None else f"{file}:{problem.line}"
    path = f"{problem.path}: " if problem.path else ""
    return visible(f"{place}: {path}{problem.message} ({problem.code})")


def _lines(file: str, verdict: Verdict, definition: Definition | None) -> str:
    if verdict.ok and definition is not None:
        nodes = counted(len(definition.nodes), "node")
        transitions = counted(len(definition.transitions), "transition")
        return visible(f"{file}: {definition.name} is valid: {nodes}, {transitions}")
    return "\n".join(problem_line(file, one) for one in verdict.problems)
