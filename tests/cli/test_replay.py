import json
from pathlib import Path

from click.testing import CliRunner

from rota.cli.main import cli
from rota.cli.render.output import ExitCode
from rota.sdk.client.client import Client
from tests.cli.conftest import Command, document
from tests.cli.flows import FAN_OUT, done_by_hand, started, written


def test_a_run_is_decided_as_it_was(rota: Command, client: Client, tmp_path: Path) -> None:
    run_id = started(rota, tmp_path, FAN_OUT.format(queue="replayed"), {"items": [1, 2]})
    done_by_hand(client, "replayed", 3)

    ended = rota("replay", run_id)

    assert (ended.exit_code, ended.stdout) == (0, "4 entries, all decided as they were\n")
    assert document(rota("replay", run_id, "--json")) == {"entries": 4, "differences": []}


def test_a_changed_definition_shows_where_it_would_differ(
    rota: Command, client: Client, tmp_path: Path
) -> None:
    text = FAN_OUT.format(queue="changed")
    run_id = started(rota, tmp_path, text, {"items": [1, 2]})
    done_by_hand(client, "changed", 3)
    file = written(tmp_path, text.replace("{item: branch.item}", "{item: branch.index}"))

    ended = rota("replay", run_id, "--against", file)
    told = json.loads(rota("replay", run_id, "--against", file, "--json").stdout)

    assert ended.exit_code == ExitCode.FAILED
    assert (
        "the run started  task work is queued for work[0]: "
        'payload is {"item":0}, instead of {"item":1}\n' in ended.stdout
    )
    assert "1 of 4 entries" in ended.stderr
    assert [one["number"] for one in told["differences"]] == [1]
    assert told["differences"][0]["event"]["type"] == "RunStarted"


def test_a_file_that_has_names_in_another_order_than_the_store_makes_no_difference(
    rota: Command, client: Client, tmp_path: Path
) -> None:
    text = """
name: ordered
initial_node: only
nodes:
  only: {task: work, queue: ordered, output: {state.b: result, state.a: result}}
"""
    run_id = started(rota, tmp_path, text, {})
    done_by_hand(client, "ordered", 1)

    ended = rota("replay", run_id, "--against", written(tmp_path, text))

    assert (ended.exit_code, ended.stdout) == (0, "2 entries, all decided as they were\n")


def test_an_exported_journal_is_replayed_without_a_coordinator(
    rota: Command, client: Client, tmp_path: Path
) -> None:
    text = FAN_OUT.format(queue="exported")
    run_id = started(rota, tmp_path, text, {"items": [1]})
    done_by_hand(client, "exported", 2)
    journal = tmp_path / "journal.json"
    journal.write_text(rota("runs", "journal", run_id, "--json").stdout)

    ended = CliRunner().invoke(
        cli,
        ["replay", "--journal", str(journal), "--against", written(tmp_path, text)],
        env={"ROTA_URL": "http://127.0.0.1:1"},
    )

    assert (ended.exit_code, ended.stdout) == (0, "3 entries, all decided as they were\n")


def test_what_cannot_be_replayed_is_told(rota: Command, tmp_path: Path) -> None:
    journal = tmp_path / "journal.json"
    journal.write_text("{}")
    file = written(tmp_path, FAN_OUT.format(queue="wrong"))

    assert "name a run" in rota("replay", "--journal", str(journal)).stderr
    broken = rota("replay", "--journal", str(journal), "--against", file)
    assert broken.exit_code == ExitCode.UNUSABLE
    assert "this is not a journal" in broken.stderr
    assert rota("replay", "nothing").exit_code == ExitCode.FAILED
