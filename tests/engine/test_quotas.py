"""What is kept has its bounds, over restarts too."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from rota.core.access import Caller, Scope
from rota.core.kv import DeleteValue, PutValue
from rota.core.workflow.commands import CheckArtifact, StageArtifact
from rota.engine.runs.artifacts import FULL_KNOWN_MS
from rota.errors import TooMany, Unavailable
from tests.conftest import TurnedClock
from tests.engine.flows import Flows
from tests.engine.running import Engine, done, running
from tests.engine.sharing import replicas

MOST = 16  # the last one is kept for operators
SHARE = 14  # of one owner
BYTES = 1_600
TTL_MS = 1_000


async def put(
    engine: Engine, key: object, size: int = 1, *, by_operator: bool = False, **more: Any
) -> None:
    value = Raw(b"1" * size)
    event = PutValue(key=str(key), value=value, by_operator=by_operator, **more)
    await engine.coordinator.execute(event)


async def test_values_are_bounded_and_the_last_are_for_operators(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock, max_values=MOST) as engine:
        for number in range(MOST - 1):
            await put(engine, number)

        with pytest.raises(TooMany, match="max_values allows 15"):
            await put(engine, "more")
        await put(engine, 0, 10)  # in the place of another
        await put(engine, "operator", by_operator=True)
        with pytest.raises(TooMany, match="max_values allows 16"):
            await put(engine, "another", by_operator=True)
        for number in range(2):
            await engine.coordinator.execute(DeleteValue(key=str(number)))
        await put(engine, "more")


async def test_bytes_of_values_are_bounded_and_known_after_a_restart(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock, max_values_bytes=BYTES) as engine:
        await put(engine, "a", 1_000)
        with pytest.raises(TooMany, match="max_values_bytes"):
            await put(engine, "b", 501)

    async with running(tmp_path / "rota.db", clock, max_values_bytes=BYTES) as engine:
        with pytest.raises(TooMany, match="max_values_bytes"):
            await put(engine, "b", 501)
        with pytest.raises(TooMany, match="max_values_bytes"):
            await put(engine, "a", 1_501)
        await put(engine, "b", 500)
        await put(engine, "a", 900)


async def test_values_past_their_time_make_room_when_they_are_swept_away(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock, max_values_bytes=BYTES) as engine:
        await put(engine, "a", 1_500, ttl_ms=TTL_MS)
        with pytest.raises(TooMany):
            await put(engine, "b")

        clock.turn(TTL_MS)
        await engine.coordinator.tick()

        await put(engine, "b", 1_500)


async def put_all(engine: Engine, owner: str, count: int, **more: Any) -> None:
    for number in range(count):
        await put(engine, f"{owner}{number}", owner=owner, **more)


async def test_values_of_one_owner_leave_some_to_the_others(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock, max_values=MOST) as engine:
        await put_all(engine, "greedy", SHARE)

        with pytest.raises(TooMany, match="max_values allows one token 14"):
            await put(engine, "more", owner="greedy")
        await put(engine, "other", owner="other")
        with pytest.raises(TooMany, match="max_values allows 15"):
            await put(engine, "last", owner="other")
        await put(engine, "admin", owner="admin", by_operator=True)


async def test_the_bytes_of_an_owner_are_known_after_a_restart(
    tmp_path: Path, clock: TurnedClock
) -> None:
    path = tmp_path / "rota.db"
    async with running(path, clock, max_values_bytes=BYTES) as engine:
        await put(engine, "a", 1_000, owner="a")

    async with running(path, clock, max_values_bytes=BYTES) as engine:
        with pytest.raises(
            TooMany, match="max_values_bytes allows one token 1400, and this one has 1000"
        ):
            await put(engine, "b", 401, owner="a")
        await put(engine, "b", 401, owner="b")


async def test_what_is_deleted_expired_or_replaced_counts_for_its_owner_no_more(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock, max_values=MOST) as engine:
        await put_all(engine, "a", SHARE - 2)
        await put(engine, "brief", owner="a", ttl_ms=TTL_MS)
        await put(engine, "taken", owner="a")
        with pytest.raises(TooMany):
            await put(engine, "more", owner="a")

        await engine.coordinator.execute(DeleteValue(key="a0"))
        await put(engine, "a0", owner="a")
        clock.turn(TTL_MS)
        await engine.coordinator.tick()
        await put(engine, "more", owner="a")
        await put(engine, "taken", owner="b")
        await put(engine, "even more", owner="a")

        with pytest.raises(TooMany, match="one token"):
            await put(engine, "taken", owner="a")


async def test_a_batch_that_is_not_committed_counts_for_nobody(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock, max_values=MOST) as engine:
        await put_all(engine, "a", SHARE - 1)
        engine.database.commit_problem = OSError("the disk is full")
        with pytest.raises(Unavailable, match="nothing was changed"):
            await put(engine, "lost", owner="a")
        engine.database.commit_problem = None

        await put(engine, "last", owner="a")


async def test_values_count_alike_whichever_coordinator_they_were_sent_to(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with replicas(clock, max_values=MOST) as (one, two):
        await put(two, "first", owner="a")
        await put_all(one, "a", SHARE - 1)

        for engine in (one, two):
            with pytest.raises(TooMany, match="one token"):
                await put(engine, "more", owner="a")


# --- artifacts ------------------------------------------------------------------------------------


FLOW = "{name: one, initial_node: a, nodes: {a: {task: work}}}"
ARTIFACTS_BYTES = 1_600  # of which one owner has 1,400, and the last 100 are for operators
KEEP_MS = 3_600_000


class Attaching:
    """A run with a leased task, to which artifacts are attached."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._flows = Flows(engine)

    async def begin(self) -> None:
        worker = await self._engine.register("w1", heartbeat_interval_ms=KEEP_MS)
        self._run_id = await self._flows.start(FLOW)
        (self._task,) = await self._engine.lease(worker)
        self._worker = worker

    async def stage(self, name: str, size: int, owner: str, *scopes: Scope) -> None:
        await self._flows.command(
            StageArtifact(
                **self._held(owner, *scopes),
                name=name,
                media_type="text/plain",
                size=size,
                content=b"x" * size,
            )
        )

    async def check(self, size: int, owner: str) -> None:
        await self._flows.command(CheckArtifact(**self._held(owner), size=size))

    def _held(self, owner: str, *scopes: Scope) -> dict[str, Any]:
        by = Caller(name=owner, token_id=owner, scopes=scopes or (Scope.WORKER,))
        task = self._task
        return {"run_id": self._run_id, "task_id": task.id, "fence": task.fence, "by": by}

    async def finish(self) -> None:
        await self._engine.report(self._worker, done(self._task))


async def test_artifacts_of_one_owner_leave_some_to_the_others(
    tmp_path: Path, clock: TurnedClock
) -> None:
    options: Any = {"max_artifacts_bytes": ARTIFACTS_BYTES}
    path = tmp_path / "rota.db"
    async with running(path, clock, **options) as engine:
        task = Attaching(engine)
        await task.begin()
        await task.stage("a", 1_300, "a")

        with pytest.raises(TooMany, match="max_artifacts_bytes allows one token 1400"):
            await task.stage("b", 101, "a")
        with pytest.raises(TooMany, match="max_artifacts_bytes allows one token 1400"):
            await task.check(101, "a")
        await task.check(100, "a")
        await task.stage("b", 200, "b")
        with pytest.raises(TooMany, match="max_artifacts_bytes allows 1500"):
            await task.stage("c", 1, "c")
        await task.stage("c", 100, "admin", Scope.ADMIN)
        await task.finish()

    async with running(path, clock, **options) as engine:
        task = Attaching(engine)
        await task.begin()
        with pytest.raises(TooMany, match="max_artifacts_bytes"):
            await task.check(1, "b")


async def test_an_artifact_that_is_not_committed_counts_for_nobody(
    tmp_path: Path, clock: TurnedClock
) -> None:
    options: Any = {"max_artifacts_bytes": ARTIFACTS_BYTES}
    async with running(tmp_path / "rota.db", clock, **options) as engine:
        task = Attaching(engine)
        await task.begin()
        engine.database.commit_problem = OSError("the disk is full")
        with pytest.raises(Unavailable, match="nothing was changed"):
            await task.stage("a", 1_400, "a")
        engine.database.commit_problem = None

        await task.stage("a", 1_400, "a")


async def test_artifacts_that_are_gone_make_room_within_seconds(
    tmp_path: Path, clock: TurnedClock
) -> None:
    options: Any = {"max_artifacts_bytes": ARTIFACTS_BYTES, "history_keep_ms": KEEP_MS}
    async with running(tmp_path / "rota.db", clock, **options) as engine:
        task = Attaching(engine)
        await task.begin()
        await task.stage("a", 1_400, "a")
        await task.stage("a", 1, "b")  # takes the place of the other

        with pytest.raises(TooMany):
            await task.check(1_400, "a")
        clock.turn(FULL_KNOWN_MS)
        await task.check(1_400, "a")


async def test_workers_are_bounded_and_one_that_is_known_may_come_back(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock, max_workers=2) as engine:
        await engine.register("a")
        await engine.register("b")

        with pytest.raises(TooMany, match="2 workers are registered"):
            await engine.register("c")
        await engine.register("a")
