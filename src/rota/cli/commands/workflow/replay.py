"""`rota replay`: decides a run's journal again, and compares."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from rota.cli.commands.workflow.code_replay import replay_open, replay_run
from rota.cli.commands.workflow.validate import valid_definition
from rota.cli.connection import connected
from rota.cli.inputs import file_text
from rota.cli.render.output import ExitCode, Table, note, show
from rota.core.workflow.definition.model import as_stored
from rota.core.workflow.program import AnyDefinition
from rota.core.workflow.replay import Difference, ReplayedEntry
from rota.core.workflow.replay import replay as replayed
from rota.sdk.client import run_calls
from rota.sdk.client.client import Client
from rota.sdk.client.requests import every_item
from rota.sdk.replay import entries_of


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    entries: int
    differences: list[Difference]


@click.command()
@click.argument("run_id", metavar="RUN", required=False)
@click.option("--against", metavar="FILE", help="Use this definition instead of the run's.")
@click.option("--journal", metavar="FILE", help="Read the journal from a file, or - from stdin.")
@click.option("--code", metavar="MODULE:APP", help="Replay with the functions of an app.")
@click.option("--open", "is_open", is_flag=True, help="With --code: replay all open runs.")
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    help="With --open: replay only this many, chosen at random.",
)
@click.option("--step", "is_stepped", is_flag=True, help="With --code: step through it with pdb.")
@click.option(
    "--set",
    "answers",
    metavar="PATH=JSON",
    multiple=True,
    help="With --code: replace a recorded answer.",
)
@connected
def replay(
    client: Client,
    run_id: str | None,
    *,
    against: str | None,
    journal: str | None,
    code: str | None,
    as_json: bool,
    **of_code: Any,
) -> None:
    """Replay a run's journal, and compare the decisions.

    The core decides on the run's events again, and the decisions are compared with the stored ones.
    With --journal and --against no coordinator is needed. Exit code 1 when there is a difference.

    With --code, the functions of an app replay the logs of runs, without side effects. At the end
    of a log the command says what the function would call next.
    """
    if code is not None:
        _replay_code(client, code, run_id, as_json=as_json, **of_code)
        return
    if run_id is None and (journal is None or against is None):
        raise click.UsageError("name a run, or give both --journal FILE and --against FILE")
    definition = _definition(client, run_id, against)
    entries = _entries(client, run_id, journal)
    answer = Replayed(entries=len(entries), differences=replayed(definition, entries))
    show(answer, as_json=as_json, render=_rendered)
    if answer.differences:
        if not as_json:
            count = len(answer.differences)
            note(f"{count} of {answer.entries} entries are decided differently")
        click.get_current_context().exit(ExitCode.FAILED)


def _replay_code(
    client: Client,
    code: str,
    run_id: str | None,
    *,
    is_open: bool,
    sample: int | None,
    is_stepped: bool,
    answers: Sequence[str],
    as_json: bool,
) -> None:
    if is_open == (run_id is not None):
        raise click.UsageError("with --code, name a run or give --open")
    if run_id is None:
        replay_open(client, code, sample=sample, as_json=as_json)
    else:
        replay_run(client, code, run_id, answers=answers, is_stepped=is_stepped, as_json=as_json)


def _definition(client: Client, run_id: str | None, against: str | None) -> AnyDefinition:
    if against is not None:
        # A journal has values in the order in which the definition of the store writes them.
        return as_stored(valid_definition(against))
    assert run_id is not None
    run = client.run(run_calls.get_run(run_id))
    view = client.run(run_calls.get_workflow(run.workflow, run.version))
    definition = view.definition or view.code
    assert definition is not None
    return definition


def _entries(client: Client, run_id: str | None, journal: str | None) -> list[ReplayedEntry]:
    if journal is not None:
        return entries_of(file_text(journal))
    assert run_id is not None
    items = client.run(every_item(lambda at: run_calls.list_journal(run_id, after=at)))
    return entries_of(items)


def _rendered(answer: Replayed) -> Table | str:
    if not answer.differences:
        return f"{answer.entries} entries, all decided as they were"
    return Table(
        ("entry", "event", "first difference"),
        [(one.number, one.text, one.words) for one in answer.differences],
    )
