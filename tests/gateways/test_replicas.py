"""What the API says of the coordinators on a store."""

from rota.core.replicas import SILENT_MS, BeatReplica, Replica
from rota.gateways.http.resources.operations import replicas
from tests.conftest import TurnedClock
from tests.engine.running import running
from tests.engine.sharing import SharedStore, replica


async def test_all_coordinators_on_a_store_are_listed_and_which_of_them_answers(
    clock: TurnedClock,
) -> None:
    store = SharedStore(clock)
    async with replica(store, "a") as a, replica(store, "b") as b:
        b.coordinator.presence.url = "http://there:7070"
        await b.coordinator.tick()
        clock.turn(SILENT_MS + 1)
        gone = Replica(name="c", host="h", version="0", started_at_ms=0)
        await a.coordinator.execute(BeatReplica(replica=gone))
        await a.coordinator.tick()

        found = await replicas(a.coordinator)

    assert [(one.name, one.url, one.is_away, one.is_here) for one in found] == [
        ("a", None, False, True),
        ("b", "http://there:7070", True, False),
        ("c", None, False, False),
    ]
    store.close()


async def test_a_coordinator_that_shares_its_store_with_nobody_lists_itself() -> None:
    async with running(":memory:") as engine:
        found = await replicas(engine.coordinator)

    assert [one.is_here for one in found] == [True]
