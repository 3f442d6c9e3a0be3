"""`rota replay --code`: the logs of runs against other code, without effects."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from rota import FunctionHandle, Rota
from rota.cli.render.output import ExitCode
from rota.sdk.client import function_calls
from rota.sdk.functions.execution.log import LoggedOperation
from tests.cli.processes import run
from tests.sdk.serving import Server, working

BEFORE = """
from rota import Rota, Run

app = Rota()

async def charge(amount: int) -> dict:
    return {"charged": amount}

def ship() -> str:
    raise RuntimeError("a replay has no effects")

@app.workflow
async def order(ctx: Run, amount: int) -> str:
    receipt = await ctx.step(charge, amount)
    if receipt.get("declined"):
        return "declined"
    await ctx.event("paid")
    return await ctx.step(ship)
"""
AFTER = BEFORE.replace(
    "    await ctx.event", '    await ctx.using(name="check").step(charge, 1)\n    await ctx.event'
)


class Shop:
    """A coordinator with a run that waits, and code to replay it with."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        (folder / "before.py").write_text(BEFORE)
        (folder / "after.py").write_text(AFTER)
        self.app = _loaded(folder / "before.py").app
        self.app.use(Rota(url).client)

    def begin(self) -> FunctionHandle[Any]:
        """Start a run, and let a worker bring it to its signal."""
        with working(self.app):
            handle: FunctionHandle[Any] = self.app.functions["order"].start(5)
            while not any(one.kind == "event" for one in self._log(handle)):
                pass
        return handle

    def _log(self, handle: FunctionHandle[Any]) -> list[LoggedOperation]:
        found: list[LoggedOperation] = self.app.client.run(function_calls.whole_log(handle.id))[0]
        return found

    def rota(self, *arguments: str, stdin: str | None = None) -> CompletedProcess[str]:
        return run(*arguments, folder=self.folder, stdin=stdin, ROTA_URL=self.url)


def _loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("shop_before", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["shop_before"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    with Server(folder) as server:
        yield Shop(folder, server.url)


def test_a_run_is_replayed_and_past_its_log_the_next_call_is_named(shop: Shop) -> None:
    handle = shop.begin()
    waits = shop.rota("replay", handle.id, "--code", "before:app")
    handle.signal("paid")
    goes_on = shop.rota("replay", handle.id, "--code", "before:app")

    assert (waits.returncode, waits.stderr) == (0, "")
    assert 'waits: ["paid#1"]' in waits.stdout
    assert goes_on.returncode == 0
    assert "would call step ship#1" in goes_on.stdout


def test_a_replaced_answer_shows_what_the_function_would_do(shop: Shop) -> None:
    handle = shop.begin()

    ended = shop.rota(
        "replay", handle.id, "--code", "before:app", "--set", 'charge#1={"declined": true}'
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    assert 'output: "declined"' in ended.stdout


def test_open_runs_are_replayed_before_a_deploy(shop: Shop) -> None:
    handle = shop.begin()

    same = shop.rota("replay", "--code", "before:app", "--open")
    other = shop.rota("replay", "--code", "after:app", "--open", "--json")

    assert same.returncode == 0, same.stderr
    assert "all go on" in same.stdout
    assert other.returncode == ExitCode.FAILED
    diverged = {one["run_id"]: one for one in json.loads(other.stdout)["runs"]}
    assert diverged[handle.id]["divergence"]["attempted"] == "step check#1"


def test_a_sample_of_the_open_runs_is_replayed(shop: Shop) -> None:
    started = {shop.begin().id for _ in range(3)}

    every = shop.rota("replay", "--code", "before:app", "--open", "--json")
    some = shop.rota("replay", "--code", "after:app", "--open", "--sample", "2", "--json")
    text = shop.rota("replay", "--code", "after:app", "--open", "--sample", "2")
    refused = shop.rota("replay", "--code", "after:app", "--open", "--sample", "0")

    replayed = {one["run_id"] for one in json.loads(every.stdout)["runs"]}
    sampled = [one["run_id"] for one in json.loads(some.stdout)["runs"]]
    assert replayed >= started
    assert len(set(sampled)) == 2
    assert set(sampled) < replayed
    assert (every.returncode, some.returncode) == (ExitCode.OK, ExitCode.FAILED)
    assert (text.returncode, text.stdout.count("check#1")) == (ExitCode.FAILED, 2), text.stdout
    assert refused.returncode == ExitCode.UNUSABLE


def test_a_function_is_stepped_through_with_recorded_answers(shop: Shop) -> None:
    handle = shop.begin()

    ended = shop.rota(
        "replay",
        handle.id,
        "--code",
        "before:app",
        "--step",
        stdin="next\nnext\np receipt\ncontinue\n",
    )

    assert "{'charged': 5}" in ended.stdout, ended.stderr


def test_a_diverged_run_is_resumed_with_the_new_code_counting(shop: Shop) -> None:
    handle = shop.begin()
    handle.pause()

    ended = shop.rota("runs", "resume", handle.id, "--accept")

    assert ended.returncode == 0, ended.stderr
    assert handle.status() == "running"
