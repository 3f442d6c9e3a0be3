"""What does a branch cost? As many statements and rows in a large fan-out as in a small one."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from rota.store.database import Database, Row, Transaction
from rota.store.leadership import Elections
from tests.conftest import TurnedClock
from tests.databases.wrapping import WrappedTransaction
from tests.engine.flows import flowing

T = TypeVar("T")

FAN = """
name: fan
initial_node: begin
nodes:
  begin: {}
  work: {task: work, input: {item: branch.item}}
  end: {task: end, input: {total: size(state.all)}, output: {output.total: result}}
transitions:
  - {id: fan, from: begin, to: work, foreach: input.items}
  - {from: work, to: end, synchronization: {joins_transition: fan, merge: {target: state.all}}}
output: {total: output.total}
"""
HANDLERS = {"work": lambda payload: payload["item"], "end": lambda payload: payload["total"]}
RESULTS_AT_ONCE = 50


class CountedTransaction(WrappedTransaction):
    """Counts the statements that run, and the rows that they read or write."""

    def __init__(self, tx: Transaction, counts: Counter[str]) -> None:
        super().__init__(tx)
        self._counts = counts

    def rows(self, query: str, /, **parameters: object) -> list[Row]:
        return self._read(super().rows(query, **parameters))

    def records(self, make: Callable[..., T], query: str, /, **parameters: object) -> list[T]:
        return self._read(super().records(make, query, **parameters))

    def _read(self, found: list[T]) -> list[T]:
        self._counts["statements"] += 1
        self._counts["read"] += len(found)
        return found

    def execute(self, query: str, /, **parameters: object) -> int:
        changed = super().execute(query, **parameters)
        self._counts["statements"] += 1
        self._counts["written"] += max(changed, 0)
        return changed

    def execute_many(
        self, query: str, names: Sequence[str], rows: Iterable[Sequence[object]], /
    ) -> int:
        listed = list(rows)
        self._counts["statements"] += len(listed)
        self._counts["written"] += len(listed)
        return super().execute_many(query, names, listed)


class CountedDatabase:
    def __init__(self, inner: Database) -> None:
        self._inner = inner
        self.counts: Counter[str] = Counter()

    def write(self, body: Callable[[Transaction], T]) -> T:
        return self._inner.write(lambda tx: body(CountedTransaction(tx, self.counts)))

    def read(self, body: Callable[[Transaction], T]) -> T:
        return self._inner.read(body)

    def begin(self, body: Callable[[Transaction], T], *, wait_s: float) -> None:
        """Nothing is begun without being waited for."""

    def administer(self, body: Callable[[Transaction], T]) -> T:
        return self._inner.administer(body)

    def disk_free_bytes(self) -> int | None:
        return self._inner.disk_free_bytes()

    @property
    def elections(self) -> Elections | None:
        return self._inner.elections

    @property
    def is_shared(self) -> bool:
        return self._inner.is_shared

    def close(self) -> None:
        self._inner.close()


async def costs(folder: Path, branches: int) -> dict[str, float]:
    """What a fan-out of that many branches and its join cost, by branch."""
    async with flowing(folder / f"{branches}.db", TurnedClock()) as flows:
        engine = flows.engine
        counted = engine.database._inner = CountedDatabase(engine.database._inner)
        worker = await engine.register(max_concurrent_tasks=RESULTS_AT_ONCE)
        run_id = await flows.start(FAN, {"items": list(range(branches))})
        await flows.take_slices()
        while await flows.work(worker, HANDLERS, most=RESULTS_AT_ONCE):
            await flows.take_slices()
        assert await flows.output(run_id) == {"total": branches}
        return {kind: count / branches for kind, count in counted.counts.items()}


async def test_the_cost_of_a_branch_does_not_grow_with_the_fan_out(tmp_path: Path) -> None:
    small, large = await costs(tmp_path, 100), await costs(tmp_path, 1_000)

    assert small.keys() == large.keys()
    for kind in small:
        assert large[kind] <= 1.05 * small[kind], (kind, small, large)
    assert large["statements"] < 20


@pytest.mark.slow
async def test_ten_thousand_branches_cost_ten_times_as_much_as_a_thousand(tmp_path: Path) -> None:
    small, large = await costs(tmp_path, 1_000), await costs(tmp_path, 10_000)
    small["read"] += 1  # the window of a lane has some thousand tasks; the others are read once

    for kind in small:
        assert large[kind] <= 1.05 * small[kind], (kind, small, large)
