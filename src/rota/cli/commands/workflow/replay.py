"""`rota replay`: decides a run's journal again, and compares."""

import click
import msgspec

from rota.cli.commands.workflow.validate import valid_definition
from rota.cli.connection import connected
from rota.cli.inputs import file_text
from rota.cli.render.output import ExitCode, Table, note, show
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
@connected
def replay(
    client: Client, run_id: str | None, *, against: str | None, journal: str | None, as_json: bool
) -> None:
    """Decide a run's journal again, and compare.

    The core decides on the run's events again, and the decisions are compared with the stored ones.
    With --journal and --against no coordinator is needed. Exit code 1 when there is a difference.
    """
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


def _definition(client: Client, run_id: str | None, against: str | None) -> AnyDefinition:
    if against is not None:
        return valid_definition(against)
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
        [(one.number, type(one.event).__name__, one.words) for one in answer.differences],
    )
