"""Would a run be decided the same way again? Its journal through the core, entry by entry."""

import click
import msgspec

from rota.cli.connection import connected
from rota.cli.inputs import file_text
from rota.cli.options import json_flag
from rota.cli.output import ExitCode, Table, note, show
from rota.cli.validate import valid_definition
from rota.core.workflow.definition import Definition
from rota.core.workflow.replay import Difference, Entry
from rota.core.workflow.replay import replay as replayed
from rota.sdk import run_calls
from rota.sdk.client import Client
from rota.sdk.replaying import entries_of


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    entries: int
    differences: list[Difference]


@click.command()
@click.argument("run_id", metavar="RUN", required=False)
@click.option("--against", metavar="FILE", help="Decide by this definition instead of the run's.")
@click.option("--journal", metavar="FILE", help="Take the journal from a file, or - from stdin.")
@connected
@json_flag
def replay(
    client: Client, run_id: str | None, *, against: str | None, journal: str | None, as_json: bool
) -> None:
    """Decide a run's journal again, and compare.

    Its events are fed to the core once more, and what is decided is held against what was.
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


def _definition(client: Client, run_id: str | None, against: str | None) -> Definition:
    if against is not None:
        return valid_definition(against)
    assert run_id is not None
    run = client.run(run_calls.get_run(run_id))
    return client.run(run_calls.get_workflow(run.workflow, run.version)).definition


def _entries(client: Client, run_id: str | None, journal: str | None) -> list[Entry]:
    if journal is not None:
        return entries_of(file_text(journal))
    assert run_id is not None
    items = run_calls.every_item(client.run, lambda at: run_calls.list_journal(run_id, after=at))
    return entries_of(items)


def _rendered(answer: Replayed) -> Table | str:
    if not answer.differences:
        return f"{answer.entries} entries, all decided as they were"
    return Table(
        ("entry", "event", "first difference"),
        [(one.number, type(one.event).__name__, one.words) for one in answer.differences],
    )
