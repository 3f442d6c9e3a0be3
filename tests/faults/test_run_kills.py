"""Does a run survive the death of its coordinator in the middle of a fan-out? Many of them."""

import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.faults.callers import MAX_ATTEMPTS, PLAIN, NoAnswer
from tests.faults.processes import Scene, scene

KILLS = 8
BRANCHES = 300
RETRY = {"max_attempts": MAX_ATTEMPTS}
WORKFLOW = {
    "initial_node": "begin",
    "nodes": {
        "begin": {},
        "double": {
            "task": "double",
            "input": {"number": "branch.item"},
            "output": {"state.mine": "result"},
            "retry": RETRY,
        },
        "again": {"task": PLAIN, "input": {"number": "state.mine"}, "retry": RETRY},
        "end": {},
    },
    "transitions": [
        {
            "id": "each",
            "from": "begin",
            "to": "double",
            "foreach": "input.numbers",
            "max_parallel": 40,
        },
        {"from": "double", "to": "again"},
        {
            "from": "again",
            "to": "end",
            "synchronization": {"joins_transition": "each", "merge": {"target": "output.all"}},
        },
    ],
}

pytestmark = pytest.mark.slow


def start_run(staged: Scene, numbers: list[int]) -> str:
    """Start the run; its key makes it safe to ask again until there is an answer."""
    wish = {"workflow": "doubling", "input": {"numbers": numbers}, "key": "the one"}
    while True:
        try:
            status, run = staged.ask("POST", "/api/runs", wish)
        except NoAnswer:
            continue
        assert status in {200, 201}, run
        return str(run["id"])


def journal(staged: Scene, run_id: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    path: str | None = f"/api/runs/{run_id}/journal"
    while path is not None:
        page = staged.call("GET", path)
        entries += page["items"]
        after = page["next_cursor"]
        path = None if after is None else f"/api/runs/{run_id}/journal?after={after}"
    return entries


def test_a_run_whose_coordinator_is_killed_again_and_again_ends_once_with_all_its_branches(
    tmp_path: Path,
) -> None:
    dice = random.Random(3)
    numbers = list(range(BRANCHES))
    with scene(tmp_path) as staged:
        staged.call("PUT", "/api/workflows/doubling", WORKFLOW)
        staged.start_worker(heartbeat_ms=1_000)
        staged.start_plain_worker("plain")
        run_id = start_run(staged, numbers)

        for _ in range(KILLS):
            staged.book.wait_for_more(dice.randint(1, BRANCHES // KILLS - 5))
            staged.restart_coordinator(signal.SIGKILL)
            assert start_run(staged, numbers) == run_id
        still = staged.call("GET", f"/api/runs/{run_id}")["state"]
        run = staged.call("GET", f"/api/runs/{run_id}?wait_ms=60000")
        entries = journal(staged, run_id)
        others = staged.call("GET", "/api/runs")["items"]

    assert still == "running"  # all kills came before its end
    assert (run["state"], run["output"]) == ("completed", {"all": [4 * one for one in numbers]})
    assert [one["id"] for one in others] == [run_id]
    assert [entry["number"] for entry in entries] == list(range(1, len(entries) + 1))
    ended = [entry["event"]["token"] for entry in entries if entry["event"]["type"] == "TaskEnded"]
    assert len(ended) == len(set(ended)) == 2 * BRANCHES
    decisions = [one["type"] for entry in entries for one in entry["decisions"]]
    assert decisions.count("CloseScope") == 1
    assert decisions.count("SetRunState") == 1
    assert decisions.count("DispatchTask") == 2 * BRANCHES
    assert staged.problems() == []
