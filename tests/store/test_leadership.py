"""Only the leader of a store writes, and a coordinator that takes over shuts out the one before."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

from rota.errors import NotLeader, Unavailable
from rota.store.access import TokenStore
from rota.store.database import Transaction
from rota.store.postgres import elections
from rota.store.postgres.address import Address, address_of
from rota.store.postgres.connection import PostgresConnection
from rota.store.postgres.database import PostgresDatabase
from rota.store.postgres.link import ConnectionLost
from rota.store.tasks.queues import QueueStore
from tests.databases.schemas import OPTIONS, lead, schemas, url
from tests.store.test_postgres import end_connections, eventually, leave, traces

pytestmark = pytest.mark.only("postgres")

LONG_MS = 600_000
PATIENCE_S = 60.0

Open = Callable[[], PostgresDatabase]


@pytest.fixture
def address(tmp_path: Path) -> Address:
    return address_of(url(), schemas.lend(str(tmp_path)))


@pytest.fixture
def handle(address: Address) -> Iterator[Open]:
    """Opens the handles of several coordinators."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(PostgresDatabase(address, OPTIONS)))


def take_over(database: PostgresDatabase, seen_epoch: int, lease_ms: int = LONG_MS) -> int | None:
    return database.elections.take_over("x", "h:1", seen_epoch=seen_epoch, lease_ms=lease_ms)


def asked(text: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url(), autocommit=True) as connection:
        return connection.execute(text.encode()).fetchall()


# --- who leads ----------------------------------------------------------------------------------


def test_a_new_store_has_no_leader(handle: Open) -> None:
    view = handle().elections.look()

    assert view.leader is None
    assert view.now_ms > 0


def test_a_handle_that_never_led_does_not_write_and_does_not_ask(
    handle: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = handle()
    monkeypatch.setattr(PostgresConnection, "_drain", None)
    monkeypatch.setattr(PostgresConnection, "_results", None)

    with pytest.raises(NotLeader, match="nothing was changed"):
        leave(database, "x")


def test_the_leader_is_shown_to_all(handle: Open) -> None:
    first, second = handle(), handle()

    epoch = first.elections.take_over("one", "host:1", seen_epoch=0, lease_ms=LONG_MS)

    view = second.elections.look()
    leader = view.leader
    assert leader is not None
    assert (epoch, first.elections.epoch, second.elections.epoch) == (1, 1, None)
    assert (leader.epoch, leader.name, leader.address) == (1, "one", "host:1")
    assert leader.is_connected
    assert 0 < leader.expires_in_ms <= LONG_MS
    assert 0 <= view.now_ms - leader.since_ms < PATIENCE_S * 1000


def test_a_leader_that_lives_is_not_taken_over(handle: Open) -> None:
    first, second = handle(), handle()
    lead(first, lease_ms=LONG_MS)

    assert take_over(second, 1) is None
    with pytest.raises(NotLeader):
        leave(second, "theirs")
    leave(first, "ours")

    assert traces(second) == {"ours"}


def test_a_lease_that_is_over_lets_another_lead_and_shuts_the_old_leader_out(handle: Open) -> None:
    first, second = handle(), handle()
    lead(first)
    leave(first, "before")

    assert take_over(second, 1) == 2
    with pytest.raises(NotLeader, match="nothing was changed"):
        leave(first, "late")
    leave(second, "after")

    assert traces(first) == {"before", "after"}
    assert first.elections.epoch is None


def test_a_lease_that_is_over_does_not_stop_the_writes_of_its_leader(handle: Open) -> None:
    database = handle()
    lead(database)

    leave(database, "x")

    assert traces(database) == {"x"}


def test_an_epoch_that_is_not_the_one_seen_is_not_taken_over(handle: Open) -> None:
    first, second = handle(), handle()
    lead(first)

    assert take_over(second, 0) is None
    assert take_over(second, 2) is None
    assert take_over(second, 1) == 2


def test_a_leader_whose_session_has_ended_is_taken_over_at_once(handle: Open) -> None:
    first, second = handle(), handle()
    lead(first, lease_ms=LONG_MS)
    assert first.elections._connection is not None

    end_connections(first.elections._connection)
    leader = second.elections.look().leader

    assert leader is not None
    assert not leader.is_connected
    assert leader.expires_in_ms > 0
    assert take_over(second, 1) == 2


def test_a_leader_that_reconnects_and_renews_is_connected_again(handle: Open) -> None:
    first, second = handle(), handle()
    lead(first, lease_ms=LONG_MS)
    assert first.elections._connection is not None
    end_connections(first.elections._connection)

    assert first.elections.renew(lease_ms=LONG_MS) is not None

    assert take_over(second, 1) is None
    leader = second.elections.look().leader
    assert leader is not None
    assert leader.is_connected


def test_renewing_extends_the_lease_and_tells_the_time_of_the_database(handle: Open) -> None:
    database, other = handle(), handle()
    lead(database)

    now_ms = database.elections.renew(lease_ms=LONG_MS)

    view = other.elections.look()
    assert view.leader is not None
    assert view.leader.expires_in_ms > LONG_MS // 2
    assert now_ms is not None
    assert 0 <= view.now_ms - now_ms < PATIENCE_S * 1000


def test_a_deposed_leader_cannot_renew_and_knows_it(handle: Open) -> None:
    first, second = handle(), handle()
    lead(first)
    take_over(second, 1)

    assert first.elections.renew(lease_ms=LONG_MS) is None
    assert first.elections.epoch is None
    assert first.elections.renew(lease_ms=LONG_MS) is None
    assert second.elections.renew(lease_ms=LONG_MS) is not None


def test_a_leader_that_resigns_writes_no_more_and_the_next_leads_at_once(handle: Open) -> None:
    first, second = handle(), handle()
    lead(first, lease_ms=LONG_MS)

    first.elections.resign()

    with pytest.raises(NotLeader):
        leave(first, "late")
    assert take_over(second, 1) == 2


def test_resigning_takes_nothing_from_the_next_leader(handle: Open) -> None:
    first, second, third = handle(), handle(), handle()
    lead(first)
    take_over(second, 1)

    first.elections.resign()

    assert take_over(third, 2) is None


def test_of_many_who_take_over_at_once_one_leads(handle: Open) -> None:
    handles = [handle() for _ in range(6)]
    lead(handles[0])
    start = threading.Barrier(len(handles) - 1)
    won: list[int | None] = []

    def race(database: PostgresDatabase) -> None:
        start.wait(PATIENCE_S)
        won.append(take_over(database, 1))

    threads = [threading.Thread(target=race, args=(one,)) for one in handles[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert sorted(one for one in won if one is not None) == [2]
    assert len(won) == len(threads)
    assert [one.elections.epoch for one in handles].count(2) == 1


def test_all_coordinators_have_the_same_secret(handle: Open) -> None:
    first, second = handle(), handle()

    secret = first.elections.secret()

    assert len(secret) == 32
    assert second.elections.secret() == secret == first.elections.secret()


def test_a_database_that_cannot_be_reached_is_told(handle: Open) -> None:
    database = handle()
    database.elections.look()
    database.elections._address = address_of("postgresql://rota@127.0.0.1:1/rota")
    assert database.elections._connection is not None
    end_connections(database.elections._connection)

    with pytest.raises(Unavailable):
        database.elections.look()


def test_tables_of_no_coordinator_are_written_without_leading(handle: Open) -> None:
    database = handle()

    assert database.administer(lambda tx: TokenStore(tx).all()) == []
    database.administer(lambda tx: QueueStore(tx).set_paused("q", paused=True, at_ms=1))

    assert traces(database) == {"q"}


# --- writes that are under way ------------------------------------------------------------------


class Underway:
    """A write on a thread of its own that stands still after its first statement."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._entered, self._leaves = threading.Event(), threading.Event()
        self.problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(database,))
        self._thread.start()
        assert self._entered.wait(PATIENCE_S)

    def _run(self, database: PostgresDatabase) -> None:
        try:
            database.write(self._body)
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.problem = error

    def _body(self, tx: Transaction) -> None:
        QueueStore(tx).set_paused("old", paused=True, at_ms=1)
        QueueStore(tx).known()
        self._entered.set()
        self._leaves.wait(PATIENCE_S)

    def go_on(self) -> None:
        self._leaves.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def test_a_takeover_waits_for_a_write_that_is_under_way(
    handle: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elections, "LOCK_MS", 60_000)
    monkeypatch.setattr(elections, "STATEMENT_MS", 60_000)
    first, second = handle(), handle()
    lead(first)
    underway = Underway(first)
    won: list[int | None] = []
    taker = threading.Thread(target=lambda: won.append(take_over(second, 1)))
    taker.start()
    assert eventually(lambda: asked("SELECT 1 FROM pg_locks WHERE NOT granted") != [])

    underway.go_on()
    taker.join(PATIENCE_S)

    assert underway.problem is None
    assert won == [2]
    assert traces(second) == {"old"}


def test_a_write_that_stands_still_is_ended_by_a_takeover(handle: Open) -> None:
    first, second = handle(), handle()
    lead(first)
    underway = Underway(first)

    assert take_over(second, 1) == 2
    leave(second, "new")
    underway.go_on()

    assert isinstance(underway.problem, Unavailable)
    assert "nothing was changed" in str(underway.problem)
    assert traces(second) == {"new"}
    with pytest.raises(NotLeader):
        leave(first, "late")
    assert traces(second) == {"new"}


def test_a_role_that_may_not_end_the_writes_of_another_waits_for_them(
    address: Address, handle: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elections, "TAKEOVER_S", 0.3)
    first = handle()
    lead(first)
    role = f"{address.schema}_limited"
    with psycopg.connect(url(), autocommit=True) as connection:
        for text in (
            f"CREATE ROLE {role} LOGIN",
            f"GRANT USAGE ON SCHEMA {address.schema} TO {role}",
            f"GRANT ALL ON ALL TABLES IN SCHEMA {address.schema} TO {role}",
        ):
            connection.execute(text.encode())
    underway = Underway(first)
    try:
        limited = address._replace(url=f"{address.url}&user={role}")
        with closing(PostgresDatabase(limited, OPTIONS)) as second:
            assert take_over(second, 1) is None
            underway.go_on()
            assert underway.problem is None
            assert take_over(second, 1) == 2
    finally:
        underway.go_on()
        with psycopg.connect(url(), autocommit=True) as connection:
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def test_the_writes_of_a_leader_that_lives_are_not_ended(handle: Open) -> None:
    first, second = handle(), handle()
    lead(first, lease_ms=LONG_MS)
    underway = Underway(first)

    assert take_over(second, 1) is None
    underway.go_on()

    assert underway.problem is None
    assert traces(second) == {"old"}


def test_a_write_that_had_not_been_sent_when_another_took_over_changes_nothing(
    handle: Open,
) -> None:
    first, second = handle(), handle()
    lead(first)

    def body(tx: Transaction) -> None:
        tx.pipeline("queues.add_lane", number=1, queue="q", name="n", requires="[]")
        assert take_over(second, 1) == 2

    with pytest.raises(NotLeader):
        first.write(body)

    assert second.read(lambda tx: tx.rows("queues.lanes")) == []


def test_a_commit_that_was_lost_on_its_way_cannot_arrive_after_the_next_write(
    handle: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = handle()
    lead(database)
    leave(database, "first")
    lost: list[PostgresConnection] = []

    def lose(connection: PostgresConnection, text: bytes) -> object:
        """The statements arrive, the commit does not, and neither does the end of the line."""
        connection.run(b"SELECT 1", (), ())
        lost.append(connection)
        raise ConnectionLost("the line went dead")

    with monkeypatch.context() as patch:
        patch.setattr(PostgresConnection, "finish", lose)
        patch.setattr(database, "_drop_writer", lambda: setattr(database, "_writer", None))
        with pytest.raises(Unavailable, match="not known"):
            leave(database, "late")

    assert eventually(lambda: database._problem is None)
    leave(database, "next")

    with pytest.raises(ConnectionLost):
        lost[0].finish(b"COMMIT")
    assert traces(database) == {"first", "next"}


def test_a_transaction_of_a_lost_connection_that_begins_late_is_refused(
    handle: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = handle()
    lead(database)
    leave(database, "first")
    fence = database.elections.fence(database.elections.term())

    def lose(connection: PostgresConnection, text: bytes) -> object:
        raise ConnectionLost("the line went dead")

    with monkeypatch.context() as patch:
        patch.setattr(PostgresConnection, "finish", lose)
        with pytest.raises(Unavailable, match="not known"):
            leave(database, "late")
    assert eventually(lambda: database._problem is None)
    leave(database, "next")

    with pytest.raises(NotLeader):
        database._run(lambda tx: QueueStore(tx).known(), fence)
    assert database.elections.epoch == 1


def test_a_write_that_changes_nothing_leaves_nothing_in_the_log(handle: Open) -> None:
    database = handle()
    lead(database)
    leave(database, "x")
    [(before,)] = asked("SELECT pg_snapshot_xmax(pg_current_snapshot())")

    for _ in range(3):
        database.write(lambda tx: QueueStore(tx).known())
        database.write(lambda _: None)

    [(after,)] = asked("SELECT pg_snapshot_xmax(pg_current_snapshot())")
    assert after == before


# --- coordinators of the version before ---------------------------------------------------------


def test_a_coordinator_of_the_version_before_cannot_write(address: Address, handle: Open) -> None:
    handle()

    with pytest.raises(psycopg.errors.UndefinedTable):
        asked(f"SELECT last_value FROM {address.schema}.turn")
