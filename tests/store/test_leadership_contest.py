"""Coordinators that take over from each other all the time, while connections are ended at random.

Every write reads a counter and writes the next number under its epoch. So two leaders that write at
once, a commit of an old epoch, and a write that is lost or made twice can be seen in the rows.
"""

import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from rota.errors import Unavailable
from rota.store.database import Transaction
from rota.store.postgres.address import Address, address_of
from rota.store.postgres.database import PostgresDatabase
from tests.databases.schemas import OPTIONS, schemas, seen, url
from tests.databases.server import given_url

pytestmark = [
    pytest.mark.only("postgres"),
    pytest.mark.slow,
    pytest.mark.skipif(given_url() is not None, reason="ends connections of others, too"),
]

COORDINATORS = 4
DURATION_S = 4.0
PATIENCE_S = 60.0
COUNTER = "task"


class Contest:
    def __init__(self, address: Address, seed: int) -> None:
        self._address = address
        self._seed = seed
        self._ends_at = float("inf")
        # Nobody's connection is ended before all stores are open: opening one is not repeated.
        self._opened = threading.Barrier(COORDINATORS + 1, self._begin, timeout=PATIENCE_S)
        self.acknowledged: set[str] = set()
        self.unknown: set[str] = set()
        self.problems: list[BaseException] = []

    def run(self) -> None:
        threads = [
            threading.Thread(target=self._guarded, args=(number,))
            for number in range(COORDINATORS + 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _begin(self) -> None:
        self._ends_at = time.monotonic() + DURATION_S

    def _guarded(self, number: int) -> None:
        dice = random.Random(f"{self._seed} {number}")
        try:
            if number == COORDINATORS:
                self._end_connections(dice)
            else:
                self._coordinate(number, dice)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.problems.append(error)

    def _coordinate(self, number: int, dice: random.Random) -> None:
        with closing(PostgresDatabase(self._address, OPTIONS)) as database:
            self._opened.wait()
            tries = 0
            while time.monotonic() < self._ends_at:
                tries += 1
                name = f"{number}-{tries}"
                try:
                    epoch = database.elections.epoch
                    if epoch is None or dice.random() < 0.03:
                        self._take_over(database, dice)
                    else:
                        database.write(write_next(name, epoch, dice))
                        self.acknowledged.add(name)
                except Unavailable as error:
                    if "not known" in error.detail:
                        self.unknown.add(name)

    def _take_over(self, database: PostgresDatabase, dice: random.Random) -> None:
        leader = database.elections.look().leader
        database.elections.take_over(
            "x",
            "y",
            seen_epoch=0 if leader is None else leader.epoch,
            lease_ms=dice.choice([0, 0, 50]),
        )

    def _end_connections(self, dice: random.Random) -> None:
        pause = threading.Event()
        with psycopg.connect(url(), autocommit=True) as operator:
            self._opened.wait()
            while time.monotonic() < self._ends_at:
                pause.wait(dice.random() * 0.05)
                operator.execute(
                    "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity "
                    "WHERE application_name = 'rota' ORDER BY random() LIMIT 1) AS one"
                )


def write_next(name: str, epoch: int, dice: random.Random) -> Callable[[Transaction], None]:
    """The body of a write that decides on what it has read; some take longer than a takeover."""
    pause_s = dice.random() * 0.4 if dice.random() < 0.05 else 0.0

    def body(tx: Transaction) -> None:
        number = tx.value("workers.counter", name=COUNTER) + 1
        threading.Event().wait(pause_s)
        tx.pipeline("workers.raise_counter", name=COUNTER, value=number)
        tx.pipeline(
            "kv.put",
            key=name,
            value=b"",
            version=number,
            updated_at_ms=epoch,
            expires_at_ms=None,
            owner=None,
        )

    return body


@pytest.mark.parametrize("seed", range(3))
def test_epochs_follow_each_other_and_no_write_is_lost_or_made_twice(
    tmp_path: Path, seed: int
) -> None:
    address = address_of(url(), schemas.lend(str(tmp_path)))
    contest = Contest(address, seed)

    contest.run()

    assert contest.problems == []
    with closing(PostgresDatabase(address, OPTIONS)) as database:
        rows = database.read(
            lambda tx: seen(tx, "SELECT version, updated_at_ms, key FROM memory ORDER BY version")
        )
    names = {key for _, _, key in rows}
    epochs = [epoch for _, epoch, _ in rows]
    assert contest.acknowledged <= names <= contest.acknowledged | contest.unknown
    assert [number for number, _, _ in rows] == list(range(1, len(rows) + 1))
    assert epochs == sorted(epochs)
    assert len(set(epochs)) > 1
