"""Definitions are read apart from everything else, a few at a time, within limits."""

import asyncio
from asyncio.subprocess import Process
from typing import Any

import pytest

from rota.core import limits
from rota.errors import TooLarge, TooMany
from rota.gateways.definitions import reader
from rota.gateways.definitions.checking import Checked, Text
from rota.gateways.definitions.reader import DefinitionReader


def definition(nodes: int) -> str:
    """A definition of about 100 bytes a node."""
    lines = [
        f"  n{number}: {{task: work, input: {{a: input.x, b: 'size(input.rows) > {number}'}}}}\n"
        for number in range(nodes)
    ]
    routes = [f"  - {{from: n{number}, to: n{number + 1}}}\n" for number in range(nodes - 1)]
    return f"initial_node: n0\nnodes:\n{''.join(lines)}transitions:\n{''.join(routes)}"


SMALL, LARGE = definition(10), definition(300)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    """The processes that are started."""
    started: list[Process] = []
    start = asyncio.create_subprocess_exec

    async def noted(*arguments: Any, **options: Any) -> Process:
        process = await start(*arguments, **options)
        started.append(process)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    return started


async def test_a_small_definition_needs_no_process(processes: list[Process]) -> None:
    checked = await DefinitionReader().read(SMALL, "small")

    assert checked.definition is not None
    assert (checked.definition.name, checked.problems) == ("small", [])
    assert processes == []


async def test_a_large_definition_is_read_by_a_process_that_ends(
    processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    def here(_: Text) -> Checked:
        raise AssertionError("a large definition is read in the coordinator")

    monkeypatch.setattr(reader, "check", here)

    checked = await DefinitionReader().read(LARGE, "large")

    assert len(LARGE) > limits.MAX_INLINE_DEFINITION_BYTES
    assert checked.problems == []
    assert checked.definition is not None
    assert (checked.definition.name, len(checked.definition.nodes)) == ("large", 300)
    assert [process.returncode for process in processes] == [0]


async def test_a_definition_that_takes_too_long_is_refused_and_its_process_killed(
    processes: list[Process],
) -> None:
    checked = await DefinitionReader(timeout_ms=1).read(LARGE)

    assert checked.definition is None
    assert [one.code for one in checked.problems] == ["too_slow"]
    (process,) = processes
    assert process.returncode is not None
    assert process.returncode < 0


async def test_a_process_that_dies_makes_a_problem_and_no_error(
    processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "CHILD", "rota.gateways.definitions.nothing")

    checked = await DefinitionReader().read(LARGE)

    assert [one.code for one in checked.problems] == ["too_expensive"]
    assert [process.returncode for process in processes] == [1]


async def test_a_caller_that_leaves_takes_its_process_along(
    processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    is_speaking = asyncio.Event()
    speak = Process.communicate

    async def noted(process: Process, message: bytes | None = None) -> tuple[bytes, bytes]:
        is_speaking.set()
        return await speak(process, message)

    monkeypatch.setattr(Process, "communicate", noted)
    reading = DefinitionReader()
    task = asyncio.create_task(reading.read(LARGE))
    await is_speaking.wait()

    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert processes[0].returncode is not None
    assert (await reading.read(SMALL, "small")).problems == []


async def test_only_so_many_processes_are_there_at_once(
    processes: list[Process],
) -> None:
    running = 0

    async def read() -> None:
        nonlocal running
        await reading.read(LARGE, "large")
        running = max(running, sum(1 for process in processes if process.returncode is None))

    reading = DefinitionReader()
    await asyncio.gather(*(read() for _ in range(4)))

    assert len(processes) == 4
    assert running <= limits.MAX_DEFINITION_PROCESSES


async def test_more_definitions_than_may_wait_are_turned_away_at_once() -> None:
    reading = DefinitionReader()
    calls = [reading.read(SMALL, "x") for _ in range(limits.MAX_DEFINITIONS_WAITING + 5)]

    answers = await asyncio.gather(*calls, return_exceptions=True)

    refused = [answer for answer in answers if isinstance(answer, TooMany)]
    assert len(refused) == 5
    assert refused[0].facts["retry_after_s"] == 1
    assert (await reading.read(SMALL, "x")).problems == []


async def test_one_token_may_not_take_the_place_of_all_others() -> None:
    reading = DefinitionReader()
    most = limits.MAX_DEFINITIONS_PER_TOKEN
    greedy = [reading.read(SMALL, "x", token_id="greedy") for _ in range(most + 3)]
    other = reading.read(SMALL, "x", token_id="other")

    *answers, last = await asyncio.gather(*greedy, other, return_exceptions=True)

    assert sum(isinstance(answer, TooMany) for answer in answers) == 3
    assert isinstance(last, Checked)
    assert (await reading.read(SMALL, "x", token_id="greedy")).problems == []


async def test_one_token_has_one_process_at_a_time(processes: list[Process]) -> None:
    most = 0

    async def read() -> None:
        nonlocal most
        await reading.read(LARGE, "large", token_id="greedy")
        most = max(most, sum(1 for process in processes if process.returncode is None))

    reading = DefinitionReader()
    await asyncio.gather(*(read() for _ in range(3)))

    assert len(processes) == 3
    assert most <= 1


async def test_a_definition_over_the_limit_is_not_read_at_all() -> None:
    with pytest.raises(TooLarge):
        await DefinitionReader().read("é" * (limits.MAX_DEFINITION_BYTES // 2 + 1))


async def test_a_program_that_cannot_start_itself_again_reads_all_in_place(
    processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.frozen", True, raising=False)

    checked = await DefinitionReader().read(LARGE, "large")

    assert checked.problems == []
    assert processes == []


def test_the_process_is_given_none_of_the_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_STORE", "postgresql://user:secret@host/db")
    monkeypatch.setenv("PGPASSWORD", "secret")

    assert "secret" not in str(reader._environment())
