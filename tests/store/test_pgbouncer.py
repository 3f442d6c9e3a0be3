"""Behind PgBouncer, each transaction may be on another connection than the one before it."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest

from rota.errors import NotLeader, Unavailable
from rota.store.database import Transaction
from rota.store.postgres.address import Address, address_of
from rota.store.postgres.database import PostgresDatabase
from rota.store.tasks.queues import QueueStore
from tests.databases.pgbouncer import PgBouncer, found
from tests.databases.schemas import OPTIONS, lead, open_leading, schemas, url
from tests.databases.server import given_url

pytestmark = [
    pytest.mark.only("postgres"),
    pytest.mark.skipif(found() is None, reason="no PgBouncer here"),
    pytest.mark.skipif(given_url() is not None, reason="PgBouncer is put before our own server"),
]

TIMEOUT_S = 60.0
WRITERS = 4
WRITES = 8  # of each writer
LONG_MS = 600_000


@pytest.fixture(scope="module")
def pooled_url() -> Iterator[str]:
    with closing(PgBouncer(url(), connections=2)) as started:
        yield started.url


@pytest.fixture
def pooled(pooled_url: str, tmp_path: Path) -> Address:
    """A schema that was made past PgBouncer, and is used through it."""
    return address_of(pooled_url, schemas.lend(str(tmp_path)))


def raise_counter(tx: Transaction) -> None:
    """Change what was read in the same transaction; nobody may come in between."""
    value = tx.value("workers.counter", name="task")
    tx.execute("workers.raise_counter", name="task", value=value + 1)


def counter(database: PostgresDatabase) -> int:
    return int(database.read(lambda tx: tx.value("workers.counter", name="task")))


def test_many_lead_one_after_the_other_and_no_write_is_lost_or_made_late(pooled: Address) -> None:
    written: list[int] = []

    end_s = time.monotonic() + TIMEOUT_S

    def work(writer: int) -> None:
        with closing(PostgresDatabase(pooled, OPTIONS)) as database:
            while written.count(writer) < WRITES and time.monotonic() < end_s:
                with suppress(AssertionError, Unavailable):  # another one takes the lead meanwhile
                    lead(database)
                    database.write(raise_counter)
                    written.append(writer)
                database.read(lambda tx: tx.rows("workers.counter", name="task"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * TIMEOUT_S)

    with closing(PostgresDatabase(pooled, OPTIONS)) as database:
        assert counter(database) == len(written) == WRITERS * WRITES


def test_a_schema_is_made_and_used_through_it(pooled_url: str) -> None:
    address = address_of(pooled_url, "rota_through_pgbouncer")

    with closing(open_leading(address)) as database:
        database.write(lambda tx: QueueStore(tx).set_paused("q", paused=True, at_ms=1))
        assert database.read(lambda tx: QueueStore(tx).known()) == {"q"}


def test_only_the_end_of_a_lease_makes_a_takeover_due(pooled: Address) -> None:
    with (
        closing(PostgresDatabase(pooled, OPTIONS)) as database,
        closing(PostgresDatabase(pooled, OPTIONS)) as other,
    ):
        lead(database, lease_ms=LONG_MS)
        assert database.elections._connection is not None
        database.elections._connection.close()

        leader = other.elections.look().leader
        assert leader is not None
        assert leader.is_connected  # nobody can know
        assert other.elections.take_over("x", "y", seen_epoch=1, lease_ms=LONG_MS) is None
        assert database.elections.renew(lease_ms=0) is not None
        assert other.elections.take_over("x", "y", seen_epoch=1, lease_ms=LONG_MS) == 2
        with pytest.raises(NotLeader):
            database.write(raise_counter)
        other.write(raise_counter)
        assert counter(database) == 1


def test_a_write_that_stands_still_is_ended_by_a_takeover(pooled: Address) -> None:
    with (
        closing(PostgresDatabase(pooled, OPTIONS)) as database,
        closing(PostgresDatabase(pooled, OPTIONS)) as other,
    ):
        lead(database)

        def body(tx: Transaction) -> None:
            raise_counter(tx)
            assert other.elections.take_over("x", "y", seen_epoch=1, lease_ms=LONG_MS) == 2

        with pytest.raises(Unavailable):
            database.write(body)
        assert counter(other) == 0


def test_nothing_of_a_session_is_used(pooled: Address) -> None:
    with closing(open_leading(pooled)) as database:
        database.write(raise_counter)
        counter(database)
        assert database._writer is not None
        assert not database._writer.is_direct
        with psycopg.connect(pooled.url, autocommit=True, prepare_threshold=None) as through:
            for _ in range(4):
                prepared = through.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
                path = through.execute("SHOW search_path").fetchone()
                assert prepared == (0,)
                assert path == ('"$user", public',)
