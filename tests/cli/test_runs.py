import json
import re
import threading
from pathlib import Path

import pytest
from msgspec import Raw
from rich.console import Console

from rota.cli.commands.workflow import watch
from rota.cli.render.output import ExitCode
from rota.cli.render.run import draw_run
from rota.cli.render.run_model import describe_counts, name_of
from rota.core.workflow.states import TokenState
from rota.messages import ResultItem, RunTokenView
from rota.sdk.client import calls, run_calls
from rota.sdk.client.client import Client
from tests.cli.conftest import Command, Hand, document
from tests.cli.flows import FAN_OUT, SIGNALLED, done_by_hand, started, written


def test_a_run_is_started_awaited_and_its_output_printed(
    rota: Command, client: Client, tmp_path: Path
) -> None:
    file = written(tmp_path, FAN_OUT.format(queue="awaited"))
    hands = threading.Thread(target=done_by_hand, args=(client, "awaited", 3))
    hands.start()

    ended = rota("run", file, "--input", '{"items": [1, 2]}', "--wait")
    hands.join()

    assert ended.exit_code == ExitCode.OK, ended.stderr
    assert json.loads(ended.stdout) == {"all": {"all": [{"item": 1}, {"item": 2}]}}


def test_watching_without_a_terminal_says_each_change(
    rota: Command, client: Client, tmp_path: Path
) -> None:
    file = written(tmp_path, FAN_OUT.format(queue="watched"))
    given = tmp_path / "input.json"
    given.write_text('{"items": [1, 2, 3]}')
    hands = threading.Thread(
        target=done_by_hand, args=(client, "watched", 4), kwargs={"failing": 1}
    )
    hands.start()

    ended = rota("run", file, "--input", f"@{given}", "--watch", "--json")
    hands.join()

    assert document(ended)["state"] == "completed"
    assert "is a try-out" in ended.stderr.splitlines()[0]
    lines = [" ".join(line.split()[2:]) for line in ended.stderr.splitlines()[1:]]
    assert lines[0].startswith("run ")
    assert "begin: 1 done" in lines
    assert "work: 2 done, 1 failed" in lines
    assert any(re.match(r"work\[\d\]: ", line) and "broken" in line for line in lines)
    assert lines[-1] == "completed"


@pytest.mark.parametrize(
    ("path", "index", "name"),
    [
        ("root", None, "work"),
        ("root.begin.2", 2, "work[2]"),
        ("root.rows.3.cells.0", 0, "work[3][0]"),
    ],
)
def test_a_token_has_the_name_that_the_journal_gives_it(
    path: str, index: int | None, name: str
) -> None:
    token = RunTokenView(
        id="r.1",
        node_id="work",
        state=TokenState.FAILED,
        path_id=path,
        branch_index=index,
        created_at_ms=1,
    )

    assert name_of(token) == name


def test_a_run_that_fails_ends_with_the_real_error(
    rota: Command, client: Client, tmp_path: Path
) -> None:
    text = FAN_OUT.format(queue="failing").replace("on_branch_failure: continue", "late: cancel")
    run_id = started(rota, tmp_path, text, {"items": [1]})
    done_by_hand(client, "failing", 1, failing=1)

    shown = rota("runs", "show", run_id).stdout
    retried = document(rota("runs", "retry", run_id, "--json"))["items"]
    done_by_hand(client, "failing", 2)

    assert "error work: Error: broken" in " ".join(shown.split())
    assert [run["state"] for run in retried] == ["running"]
    assert client.run(run_calls.get_run(run_id, wait_ms=30_000)).state == "completed"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--wait", "--wait-timeout-ms", "0"), ExitCode.TIMED_OUT, "is still running"),
        (("--watch", "--timeout-ms", "1"), ExitCode.FAILED, "timed out: timeout"),
    ],
)
def test_waiting_ends_with_the_exit_codes_of_submit(
    rota: Command, tmp_path: Path, arguments: tuple[str, ...], code: ExitCode, said: str
) -> None:
    ended = rota("run", written(tmp_path, SIGNALLED.format(name="codes")), *arguments)

    assert ended.exit_code == code
    assert said in ended.stderr
    assert ended.stdout == ""


def test_a_cancelled_run_is_exit_code_3(rota: Command, tmp_path: Path) -> None:
    text = SIGNALLED.format(name="cancelled")
    file = written(tmp_path, text)
    run_id = document(rota("run", file, "--key", "c", "--json"))["id"]

    cancelled = document(rota("runs", "cancel", run_id, "--reason", "not needed", "--json"))
    waited = rota("run", file, "--key", "c", "--wait")

    assert [run["state"] for run in cancelled["items"]] == ["cancelled"]
    assert waited.exit_code == ExitCode.CANCELLED
    assert "had this key already" in waited.stderr
    assert "was cancelled: not needed" in waited.stderr


def test_a_run_is_told_what_it_waits_for(rota: Command, client: Client, tmp_path: Path) -> None:
    run_id = started(rota, tmp_path, SIGNALLED.format(name="told"))

    run = client.run(run_calls.get_run(run_id))
    model = watch.RunObserver(client, run).observe(run)
    (asking,) = client.run(run_calls.list_asking_tokens(run_id, "approve")).items
    approved = rota("runs", "signal", run_id, "approve", "--payload", '{"approved": true}')
    again = rota("runs", "signal", run_id, "approve", "--payload", "true", "--token-id", asking.id)
    rota("runs", "signal", run_id, "go", "--payload", "-", stdin='"now"')

    assert model is not None
    assert model.counts("approve") == {"waiting": 1}
    assert f"rota runs signal {run_id} approve --payload" in model.hints[0]
    assert model.hints[0].endswith(f"--token-id {asking.id}")
    assert again.exit_code != 0
    assert "does not wait" in again.stderr
    assert approved.stdout == f"run {run_id} got signal approve\n"
    shown = document(rota("runs", "show", run_id, "--json"))
    assert (shown["state"], shown["output"]) == ("completed", {"said": "now"})


def test_scopes_are_listed_completed_and_cancelled(
    rota: Command, client: Client, tmp_path: Path
) -> None:
    text = FAN_OUT.format(queue="scoped")
    run_id = started(rota, tmp_path, text, {"items": [1, 2]})
    other = started(rota, tmp_path, text, {"items": [1]})
    done_by_hand(client, "scoped", 1)

    listed = rota("runs", "scopes", run_id).stdout
    done = rota("runs", "complete-scope", run_id, "1", "--reason", "one will do")
    closed = document(rota("runs", "scopes", run_id, "--closed", "--json"))["items"]
    cancelled = rota("runs", "cancel-scope", other, "1")
    again = rota("runs", "cancel-scope", other, "1")

    assert "1 live, 1 arrived" in listed
    assert done.stdout == f"scope 1 of run {run_id} is complete\n"
    assert closed[0]["because"] == "one will do"
    assert cancelled.stdout == f"scope 1 of run {other} is cancelled\n"
    assert again.exit_code != 0


def test_branches_are_added_to_an_open_scope(rota: Command, tmp_path: Path) -> None:
    text = FAN_OUT.format(queue="growing").replace(
        "foreach: input.items", "foreach: input.items, open: until_closed"
    )
    run_id = started(rota, tmp_path, text, {"items": [1]})

    added = rota("runs", "add-branches", run_id, "1", "--items", "[2, 3]", "--last")
    wrong = rota("runs", "add-branches", run_id, "1", "--items", '{"a": 1}')

    assert added.stdout == f"scope 1 of run {run_id} has 3 branches\n"
    assert "--items must be a JSON list" in wrong.stderr


def test_a_deployed_workflow_is_run_by_its_name(rota: Command, tmp_path: Path) -> None:
    rota("workflows", "put", written(tmp_path, SIGNALLED.format(name="deployed")))

    ended = rota("run", "deployed", "--json")

    assert document(ended)["workflow"] == "deployed"


def test_runs_are_listed_paused_and_resumed(rota: Command, tmp_path: Path) -> None:
    text = SIGNALLED.format(name="listed")
    first, second = (started(rota, tmp_path, text) for _ in range(2))

    shown = " ".join(rota("runs", "show", second).stdout.split())
    paused = rota("runs", "pause", first, "nothing")
    listed = rota("runs", "ls", "--workflow", "listed", "--state", "running")
    resumed = document(rota("runs", "resume", first, "--json"))
    page = rota("runs", "ls", "--workflow", "listed", "--limit", "1")

    assert "waiting for approval: Really" in shown
    assert paused.exit_code == ExitCode.FAILED
    assert "'nothing' not found" in paused.stderr
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["RUN", second]
    assert resumed["items"][0]["state"] == "running"
    assert "--cursor" in page.stderr


def test_tokens_journal_and_graph_are_shown(rota: Command, client: Client, tmp_path: Path) -> None:
    run_id = started(rota, tmp_path, FAN_OUT.format(queue="looked"), {"items": ["a", "b"]})
    done_by_hand(client, "looked", 3)

    tokens = rota("runs", "tokens", run_id).stdout.splitlines()
    journal = rota("runs", "journal", run_id).stdout.splitlines()
    graph = rota("runs", "graph", run_id).stdout
    document_of_journal = document(rota("runs", "journal", run_id, "--json"))

    assert [line.split()[1] for line in tokens] == ["NODE", "begin", "work", "work", "total"]
    assert "[1] of 2" in tokens[3]
    events = ["the run started", "work[0] done, 1 of 2", "work[1] done, 2 of 2", "total done"]
    assert [event in line for event, line in zip(events, journal[1:], strict=True)] == [True] * 4
    assert "each fans out into 2 branches" in journal[1]
    assert "branch 1 of each has arrived" in "".join(journal)
    assert "token" not in "".join(journal)
    assert "each: taken 2" in graph
    assert "2 of 2 arrived, fired 1" in graph
    assert [entry["number"] for entry in document_of_journal["items"]] == [1, 2, 3, 4]


def test_a_fork_is_a_new_run(rota: Command, client: Client, tmp_path: Path) -> None:
    run_id = started(rota, tmp_path, FAN_OUT.format(queue="forked"), {"items": []})
    done_by_hand(client, "forked", 1)

    fork_id = rota(
        "runs", "fork", run_id, "--from", "total", "--state", '{"all": [7]}'
    ).stdout.strip()
    done_by_hand(client, "forked", 1)

    fork = document(rota("runs", "show", fork_id, "--json"))
    assert fork["forked_from"] == run_id
    assert fork["output"] == {"all": {"all": [7]}}
    unknown = rota("runs", "fork", run_id, "--from", "nowhere")
    assert unknown.exit_code == ExitCode.FAILED


def test_artifacts_are_listed_and_given(rota: Command, client: Client, tmp_path: Path) -> None:
    run_id = started(rota, tmp_path, FAN_OUT.format(queue="kept"), {"items": []})
    hand = Hand(client, "kept")
    lease = hand.lease()
    attached = run_calls.put_artifact(
        run_id,
        "a b.txt",
        b"kept\n",
        media_type="text/plain",
        task_id=lease.task_id,
        fence=lease.fence,
    )
    client.run(attached)
    hand.report(lease, ok=True, result=Raw(b"1"))
    target = tmp_path / "copy.txt"

    listed = rota("runs", "artifacts", run_id).stdout.splitlines()
    given = rota("runs", "artifacts", run_id, "a b.txt")
    copied = rota("runs", "artifacts", run_id, "a b.txt", "-o", str(target))

    assert listed[1].startswith("a b.txt")
    assert "text/plain" in listed[1]
    assert given.stdout == "kept\n"
    assert (copied.stdout, target.read_text()) == ("", "kept\n")
    missing = rota("runs", "artifacts", run_id, "other")
    assert missing.exit_code == ExitCode.FAILED


def test_a_picture_is_drawn_for_a_terminal(
    rota: Command, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "is_terminal", lambda _stream: True)
    file = written(tmp_path, FAN_OUT.format(queue="drawn"))
    hands = threading.Thread(target=done_by_hand, args=(client, "drawn", 3))
    hands.start()

    ended = rota("run", file, "--input", '{"items": [1, 2]}', "--watch")
    hands.join()

    assert ended.exit_code == ExitCode.OK, ended.stderr
    assert "drawn v1" in ended.stderr
    assert "━" in ended.stderr
    assert json.loads(ended.stdout)["all"] == {"all": [{"item": 1}, {"item": 2}]}


def test_input_that_is_not_json_is_wrong_usage(rota: Command, tmp_path: Path) -> None:
    file = written(tmp_path, SIGNALLED.format(name="usage"))

    for given in ("{", "@missing.json"):
        ended = rota("run", file, "--input", given)
        assert ended.exit_code == ExitCode.UNUSABLE
        assert "--input" in ended.stderr


def test_an_unknown_run_is_exit_code_1(rota: Command) -> None:
    ended = rota("runs", "show", "nothing")

    assert ended.exit_code == ExitCode.FAILED
    assert ended.stderr == (
        "error: run 'nothing' not found; check its id, and for how long ended runs are kept "
        "(run_not_found)\n"
    )


def test_a_task_of_a_run_is_cancelled_with_it(
    rota: Command, client: Client, tmp_path: Path
) -> None:
    run_id = started(rota, tmp_path, FAN_OUT.format(queue="stopped"), {"items": [1]})
    hand = Hand(client, "stopped")
    lease = hand.lease()

    rota("runs", "cancel", run_id)

    item = ResultItem(task_id=lease.task_id, fence=lease.fence, ok=True, result=Raw(b"1"))
    report = calls.report_results(
        hand.worker.id, incarnation=hand.worker.incarnation, results=[item]
    )
    assert client.run(report).outcomes[0].outcome == "stale"


HELD_BACK = """
name: held-{queue}
initial_node: begin
nodes: {{begin: {{}}, work: {{task: work, queue: {queue}}}, end: {{}}}}
transitions:
  - {{id: fan, from: begin, to: work, spawn_count: 10, max_parallel: 3}}
  - from: work
    to: end
    synchronization: {{joins_transition: fan, merge: {{target: output.all}}}}
"""


def test_every_branch_is_accounted_for_also_those_that_are_held_back(
    rota: Command, client: Client, tmp_path: Path
) -> None:
    run_id = started(rota, tmp_path, HELD_BACK.format(queue="held"))
    done_by_hand(client, "held", 2)
    Hand(client, "held").lease()

    run = client.run(run_calls.get_run(run_id))
    model = watch.RunObserver(client, run).observe(run)

    assert model is not None
    counts = model.counts("work")
    assert counts == {"done": 2, "running": 1, "queued": 2, "held back": 5}
    assert describe_counts(counts) == "2 done, 1 running, 2 queued, 5 held back of 10"
    console = Console(width=100, height=30, no_color=True)
    with console.capture() as captured:
        console.print(draw_run(model, width=100, height=30))
    (line,) = [one for one in captured.get().splitlines() if one.startswith("work")]
    assert line.split()[-2:] == ["of", "10"] or "of 10" in line


def test_branches_that_a_failure_has_kept_from_starting_are_accounted_for(
    rota: Command, client: Client, tmp_path: Path
) -> None:
    text = HELD_BACK.format(queue="kept").replace(
        "queue: kept", "queue: kept, retry: {max_attempts: 1}"
    )
    run_id = started(rota, tmp_path, text)
    done_by_hand(client, "kept", 1, failing=1)

    run = client.run(run_calls.get_run(run_id))
    model = watch.RunObserver(client, run).observe(run)

    assert run.state == "failed"
    assert model is not None
    counts = model.counts("work")
    assert sum(counts.values()) == 10
    assert counts["failed"] == 1
    assert describe_counts(counts).endswith(f"{counts['not started']} not started of 10")


def test_runs_are_listed_with_what_they_wait_for_and_their_parents(
    rota: Command, client: Client, tmp_path: Path
) -> None:
    child = SIGNALLED.format(name="listed-child")
    rota("workflows", "put", written(tmp_path, child))
    outer = "{name: listed-outer, initial_node: n, nodes: {n: {workflow: listed-child}}}"
    parent = started(rota, tmp_path, outer)

    listed = rota("runs", "ls", "--workflow", "listed-child").stdout
    of_parent = rota("runs", "ls", "--workflow", "listed-outer").stdout
    waits = document(rota("runs", "waits", "--json"))["items"]

    assert "approval: " in listed
    assert f"listed-outer {parent}" in listed
    assert "child run of 'listed-child'" in of_parent
    (wait,) = [one for one in waits if one["workflow"] == "listed-child"]
    assert wait["title"] in rota("runs", "waits", "--kind", "approval").stdout
    assert wait["parent_run_id"] == parent
