"""Three coordinators on one PostgreSQL in all kinds of trouble: does everything go on by itself?"""

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

from tests.databases import pgbouncer
from tests.faults.pacing import wait_recovered
from tests.faults.postgres import Postgres, PostgresPlace, placed, terminate_backends
from tests.faults.processes import scene
from tests.faults.proxy import Proxy

REPLICAS = 3
ROUNDS = 3
VICTIM = 1  # the replica whose network is bad
DELAY_S = 0.05
HOUR_MS = 3_600_000
LIMIT_S = 400

pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT_S)]


def test_all_sessions_of_the_database_may_be_ended_at_once(
    tmp_path: Path, place: PostgresPlace
) -> None:
    with scene(tmp_path, place, replicas=REPLICAS) as staged:
        usual = staged.load()

        ended = []
        for _ in range(ROUNDS):
            ended.append(place.server.terminate_backends())
            staged.book.wait_for_more(20)
        wait_recovered(staged.book, usual)
        staged.finish()

    assert ended[0] >= REPLICAS
    assert all(ended)  # those of a follower are back only when it looks for the leader again
    assert staged.problems() == []


def test_coordinators_that_get_no_connection_get_their_work_done_when_there_are_some_again(
    tmp_path: Path, place: PostgresPlace
) -> None:
    with scene(tmp_path, place, replicas=REPLICAS) as staged:
        usual = staged.load()

        with ExitStack() as taken:
            own = taken.enter_context(place.server.connect())

            def take_places() -> None:
                terminate_backends(
                    own
                )  # a connection that comes back later than ours finds no place
                use_up_connections(place.server, taken)

            staged.wait_for_trouble(take_places)
        wait_recovered(staged.book, usual)
        staged.wait_all_ready()
        staged.finish()

    assert staged.problems() == []


def use_up_connections(server: Postgres, taken: ExitStack) -> None:
    while True:
        try:
            taken.enter_context(server.connect(name="hog"))
        except psycopg.OperationalError:
            return


TROUBLES: dict[str, Callable[[Proxy], None]] = {
    "partition": Proxy.partition,
    "half-open": Proxy.half_open,
    "drop": Proxy.drop,
    "cut": Proxy.cut,
    "delay": lambda proxy: proxy.delay(DELAY_S),
}


def test_a_replica_whose_network_is_bad_holds_nobody_up_for_long_and_loses_nothing(
    tmp_path: Path, postgres: Postgres
) -> None:
    with placed(postgres, "network", proxied=[VICTIM]) as place:
        with scene(tmp_path, place, replicas=REPLICAS) as staged:
            usual = staged.load()

            for trouble in TROUBLES.values():
                trouble(place.proxies[VICTIM])
                # Callers of that one go elsewhere, and what it held the database lets go of.
                staged.book.wait_for_more(100)
                place.proxies[VICTIM].heal()
                wait_recovered(staged.book, usual)
            staged.wait_all_ready()
            staged.finish()

        assert staged.problems() == []


def test_a_transaction_that_stays_open_elsewhere_stops_nobody(
    tmp_path: Path, place: PostgresPlace
) -> None:
    with scene(tmp_path, place, replicas=REPLICAS) as staged:
        usual = staged.load()

        with place.server.connect() as held:
            held.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            held.execute("SELECT pg_current_xact_id()")  # nothing newer may be vacuumed from here
            staged.book.wait_for_more(300)
            wait_recovered(staged.book, usual)
            held.execute("ROLLBACK")
        wait_recovered(staged.book, usual)
        staged.finish()

    assert staged.problems() == []


def test_coordinators_whose_clocks_differ_by_hours_go_by_that_of_the_database(
    tmp_path: Path, place: PostgresPlace
) -> None:
    began_ms = time.time_ns() // 1_000_000
    with scene(tmp_path, place, replicas=REPLICAS, shifts_ms=[0, HOUR_MS, -HOUR_MS]) as staged:
        usual = staged.load()
        staged.book.wait_for_more(100)
        wait_recovered(staged.book, usual)
        tasks = staged.drain()
        ended_ms = time.time_ns() // 1_000_000

    assert staged.problems() == []
    moments = [task[name] for task in tasks for name in ("created_at_ms", "finished_at_ms")]
    slack_ms = 2_000
    assert min(moments) >= began_ms - slack_ms
    assert max(moments) <= ended_ms + slack_ms


def test_behind_pgbouncer_in_transaction_mode_all_is_kept(
    tmp_path: Path, place: PostgresPlace
) -> None:
    if pgbouncer.found() is None:
        pytest.skip("there is no PgBouncer here; `make test` installs Debian's when it may")
    pool = pgbouncer.PgBouncer(place.server.url, connections=10)
    place.pool_url = pool.url
    with closing(pool), scene(tmp_path, place, replicas=REPLICAS) as staged:
        usual = staged.load()

        staged.kill_coordinator(0)
        place.server.terminate_backends()
        staged.wait_all_serve()
        wait_recovered(staged.book, usual)
        staged.finish()

    assert staged.problems() == []
