"""Behind PgBouncer, each transaction may be on another connection than the one before it."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rota.errors import Unavailable
from rota.store.database import Transaction
from rota.store.postgres.address import Address, address_of
from rota.store.postgres.database import PostgresDatabase
from rota.store.tasks.queues import QueueStore
from tests.databases.pgbouncer import PgBouncer, found
from tests.databases.schemas import OPTIONS, schemas, url
from tests.databases.server import given_url

pytestmark = [
    pytest.mark.only("postgres"),
    pytest.mark.skipif(found() is None, reason="no PgBouncer here"),
    pytest.mark.skipif(given_url() is not None, reason="PgBouncer is put before our own server"),
]

TIMEOUT_S = 60.0
WRITERS = 4
WRITES = 25


@pytest.fixture(scope="module")
def pooled_url() -> Iterator[str]:
    with closing(PgBouncer(url(), connections=2)) as started:
        yield started.url


@pytest.fixture
def pooled(pooled_url: str, tmp_path: Path) -> Address:
    """A schema that was made past PgBouncer, and is used through it."""
    return address_of(pooled_url, schemas.lend(str(tmp_path)))


def raise_counter(tx: Transaction) -> bool:
    """Change what was read in the same transaction; nobody may come in between."""
    value = tx.value("workers.counter", name="task")
    tx.execute("workers.raise_counter", name="task", value=value + 1)
    return tx.changed_by_peer


def test_writes_of_many_follow_each_other_and_none_is_lost(pooled: Address) -> None:
    def work() -> None:
        with closing(PostgresDatabase(pooled, OPTIONS)) as database:
            for _ in range(WRITES):
                database.write(raise_counter)
                database.read(lambda tx: tx.rows("workers.counter", name="task"))

    threads = [threading.Thread(target=work) for _ in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)

    with closing(PostgresDatabase(pooled, OPTIONS)) as database:
        found = database.read(lambda tx: tx.rows("workers.counter", name="task"))
        assert found == [(WRITERS * WRITES,)]
        assert database.change_counter() == WRITERS * WRITES


def test_a_schema_is_made_and_used_through_it(pooled_url: str) -> None:
    address = address_of(pooled_url, "rota_through_pgbouncer")

    with closing(PostgresDatabase(address, OPTIONS)) as database:
        database.write(lambda tx: QueueStore(tx).set_paused("q", paused=True, at_ms=1))
        assert database.read(lambda tx: QueueStore(tx).known()) == {"q"}
        assert [database.write(lambda tx: tx.changed_by_peer) for _ in range(2)] == [False, False]


def test_time_limits_hold_in_every_transaction(pooled: Address) -> None:
    impatient = OPTIONS._replace(lock_ms=50)
    with (
        closing(PostgresDatabase(pooled, OPTIONS)) as database,
        closing(PostgresDatabase(pooled, impatient)) as other,
    ):

        def body(tx: Transaction) -> None:
            raise_counter(tx)
            with pytest.raises(Unavailable, match="nothing was changed"):
                other.write(raise_counter)

        database.write(body)

        assert other.read(lambda tx: tx.rows("workers.counter", name="task")) == [(1,)]
