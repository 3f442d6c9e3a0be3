"""Three coordinators on one PostgreSQL, any of them killed, and the database too: is all kept?"""

import random
from pathlib import Path

import pytest

from tests.faults.pacing import wait_recovered
from tests.faults.postgres import PostgresPlace
from tests.faults.processes import scene, stop

REPLICAS = 3
REPLICA_KILLS = 25
DATABASE_KILLS = 25
LIMIT_S = 400

pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT_S)]


def test_killing_any_replica_again_and_again_under_load_loses_and_doubles_nothing(
    tmp_path: Path, place: PostgresPlace
) -> None:
    dice = random.Random(4)
    with scene(tmp_path, place, replicas=REPLICAS) as staged:
        usual = staged.load()

        for number in range(REPLICA_KILLS):
            staged.book.wait_for_more(dice.randint(1, 40))
            staged.kill_coordinator(number % REPLICAS)
        staged.wait_all_serve()
        wait_recovered(staged.book, usual)
        staged.finish()

    assert staged.problems() == []
    assert staged.book.accepted > 4 * REPLICA_KILLS


def test_killing_postgresql_again_and_again_under_load_loses_and_doubles_nothing(
    tmp_path: Path, place: PostgresPlace
) -> None:
    dice = random.Random(5)
    with scene(tmp_path, place, replicas=REPLICAS) as staged:
        usual = staged.load()

        for number in range(DATABASE_KILLS):
            staged.book.wait_for_more(dice.randint(1, 20))
            if number % 2:
                place.server.kill_and_start()
            else:
                place.server.restart_at_once()
        wait_recovered(staged.book, usual)
        staged.finish()
        codes = [stop(one) for one in staged.coordinators]

    assert staged.problems() == []
    assert codes == [0] * REPLICAS
