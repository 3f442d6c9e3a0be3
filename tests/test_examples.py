"""Every example workflow runs to its end, on a real coordinator with a real worker."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.workflows import tasks
from rota import RunFailed, RunHandle, Workflow
from rota.sdk.client.client import Client
from tests.sdk.serving import PATIENCE_S, Server, working

FOLDER = Path(tasks.__file__).parent


@pytest.fixture(scope="module", autouse=True)
def _worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, Server(tmp_path_factory.mktemp("server")) as server:
        patch.setattr(tasks, "PAUSE_S", 0.0)
        client = Client.connect(server.url)
        tasks.app.use(client)
        with working(tasks.app, concurrency=20):
            yield
        tasks.app.reset()
        client.close()


def workflow(name: str) -> Workflow:
    return tasks.app.workflow(FOLDER / f"{name}.yaml")


def tokens_at(run: RunHandle, node_id: str) -> list[str]:
    """The states of the tokens of a node."""
    return [str(token.state) for token in run.tokens() if token.node_id == node_id]


def answer(run: RunHandle, node_id: str, *, approved: bool) -> None:
    """Answer an approval as soon as the run asks for it: an early answer is refused."""
    deadline_s = time.monotonic() + PATIENCE_S
    while "waiting_for_event" not in tokens_at(run, node_id):
        assert time.monotonic() < deadline_s, f"the run does not ask for {node_id}"
    run.signal(node_id, {"approved": approved})


def output_of(name: str, run_input: Any) -> Any:
    return workflow(name).start(run_input).result(timeout=PATIENCE_S)


def test_every_example_is_run_here() -> None:
    names = {path.stem for path in FOLDER.glob("*.yaml")}

    assert names == {"document_pipeline", "judging_panel", "nested", "order", "refine", "release"}


def test_the_document_pipeline_retries_merges_and_bears_a_loss() -> None:
    run = workflow("document_pipeline").start({"documents": ["b", "flaky", "missing", "a"]})

    output = run.result(timeout=PATIENCE_S)

    assert output["summarized"] == 3
    assert [line.partition(":")[0] for line in output["report"].splitlines()[:3]] == [
        "b",
        "flaky",
        "a",
    ]
    assert tokens_at(run, "fetch").count("failed") == 1
    (artifact,) = run.artifacts()
    assert run.artifact(artifact.name).decode() == output["report"]


def test_the_judging_panel_goes_on_with_three_verdicts() -> None:
    judges = ["ada", "bob", "slow sid", "cleo", "slow sue"]
    run = workflow("judging_panel").start({"question": "Tea?", "judges": judges})

    output = run.result(timeout=PATIENCE_S)

    assert output["votes"] in {2, 3}
    assert sorted(tokens_at(run, "judge")) == ["cancelled"] * 2 + ["completed"] * 3


def test_a_release_goes_out_when_it_is_approved() -> None:
    run = workflow("release").start({"version": "1.0"})

    answer(run, "sign_off", approved=True)

    assert run.result(timeout=PATIENCE_S) == {"released": "shop-1.0.tar.gz"}


@pytest.mark.parametrize(("approved", "reason"), [(True, "does not start"), (False, "refused")])
def test_a_release_that_fails_is_undone_last_step_first(
    monkeypatch: pytest.MonkeyPatch, *, approved: bool, reason: str
) -> None:
    undone: list[str] = []
    lock = threading.Lock()
    for task in (tasks.unstage_release, tasks.discard_release):

        async def undo(node: str, result: dict[str, str], error: dict[str, Any]) -> None:
            with lock:
                undone.append(node)

        monkeypatch.setattr(task, "function", undo)
    run = workflow("release").start({"version": "1.1", "breaks": True})

    answer(run, "sign_off", approved=approved)

    with pytest.raises(RunFailed, match=reason):
        run.result(timeout=PATIENCE_S)
    assert undone == ["stage", "build"]


def test_nested_fan_outs_keep_their_branches_apart() -> None:
    regions = [
        {"name": "alps", "shops": ["zug", "chur", "bern"]},
        {"name": "coast", "shops": ["kiel"]},
        {"name": "empty", "shops": []},
    ]

    assert output_of("nested", {"regions": regions}) == {
        "total": 150,
        "regions": {"alps": 110, "coast": 40, "empty": 0},
    }


def test_refining_goes_round_until_it_is_good_enough() -> None:
    output = output_of("refine", {"topic": "tea", "good_enough": 0.9})

    assert (output["rounds"], output["score"]) == (2, 1.0)
    assert output["text"].startswith("On tea. More is said now.")


def test_an_order_is_reserved_line_by_line_and_shipped() -> None:
    run = workflow("order").start({"number": 7, "lines": ["tea", "cups", "pot"]})

    output = run.result(timeout=PATIENCE_S)

    assert (output["tracking"][:1], output["apology"]) == ("P", "")
    assert tokens_at(run, "reserve") == ["completed"] * 3
    assert tokens_at(run, "approve") == []


def test_a_large_order_waits_for_a_yes() -> None:
    run = workflow("order").start({"number": 8, "lines": ["piano"], "cents": 900_000})

    answer(run, "approve", approved=True)

    assert run.result(timeout=PATIENCE_S)["tracking"]
    assert tokens_at(run, "approve") == ["completed"]


def test_a_refused_card_ends_in_an_apology() -> None:
    output = output_of("order", {"number": 9, "lines": ["tea"], "card": "refused"})

    assert output == {
        "tracking": "",
        "apology": "Order 9 could not be charged. We are sorry.",
    }
