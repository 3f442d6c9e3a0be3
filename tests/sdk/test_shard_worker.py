"""Shard workers on a real coordinator, over HTTP and over ZeroMQ."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota import HeldShard, Invalid, Rota, ShardWorker, StaleEpoch, StopReason
from rota.errors import Forbidden
from rota.gateways.zeromq.auth.keys import add_client, create_keys
from rota.messages import LeaseRequest, ResultItem, WorkerRegistration
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from rota.sdk.client.service_calls import save_checkpoint
from tests.sdk.listening import free_url
from tests.sdk.serving import PATIENCE_S
from tests.sdk.sharing import SERVICE, Diary, ShardServer, keeper, look_until

LEASE_MS = 3_000
WIRES = pytest.mark.parametrize("wire", ["http", "zeromq"])


def shard_counts(server: ShardServer) -> list[int]:
    return [len(one.shards) for _, one in sorted(server.members().items())]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ShardServer]:
    with ShardServer(tmp_path, shard_lease_ms=LEASE_MS) as running:
        yield running


@pytest.fixture
def diary() -> Diary:
    return Diary()


def assigned(worker_id: str, *shards: int) -> list[str]:
    return [f"{worker_id} assigned {shard}" for shard in shards]


@WIRES
def test_workers_share_the_shards(server: ShardServer, diary: Diary, wire: str) -> None:
    with keeper(diary, "a", **server.options(wire)) as one:
        diary.wait_for(*assigned("a", 0, 1, 2, 3))
        with keeper(diary, "b", **server.options(wire)) as other:
            diary.wait_for(*assigned("b", 2, 3))

            # The last of the callbacks is about to return.
            look_until(lambda: (sorted(one.held), sorted(other.held)) == ([0, 1], [2, 3]))
            for shard in (2, 3):
                revoked = diary.lines.index(f"a revoked {shard}")
                assert revoked < diary.lines.index(f"b assigned {shard}")


@WIRES
def test_a_planned_leave_hands_over_in_under_a_second(
    server: ShardServer, diary: Diary, wire: str
) -> None:
    with keeper(diary, "a", **server.options(wire)):
        diary.wait_for(*assigned("a", 0, 1, 2, 3))
        with keeper(diary, "b", **server.options(wire)):
            diary.wait_for(*assigned("b", 2, 3))
            diary.lines.clear()
            asked_at = time.monotonic()
        diary.wait_for(*assigned("a", 2, 3))
        took_s = time.monotonic() - asked_at

    assert took_s < 1.0
    ends = sorted(line for line in diary.lines if line.startswith("b"))
    assert ends == ["b revoked 2", "b revoked 3"]


@WIRES
def test_coroutine_functions_are_called_on_the_worker_s_own_loop(
    server: ShardServer, diary: Diary, wire: str
) -> None:
    async def main() -> StopReason:
        own_loop = asyncio.get_running_loop()

        async def take_up(held: HeldShard) -> None:
            assert asyncio.get_running_loop() is own_loop
            await held.asave({"at": held.shard})
            diary.note(f"checkpoint {await held.acheckpoint()}")
            if len(diary.lines) == 4:
                worker.stop()

        worker = ShardWorker(SERVICE, shards=4, on_assigned=take_up, **server.options(wire))
        return await worker.arun()

    assert asyncio.run(main()) is StopReason.STOPPED
    assert sorted(diary.lines) == [f"checkpoint {{'at': {shard}}}" for shard in range(4)]


@WIRES
def test_callbacks_that_block_do_not_hold_up_the_heartbeat(
    server: ShardServer, diary: Diary, wire: str
) -> None:
    may_end = threading.Event()

    async def block_the_loop(held: HeldShard) -> None:
        diary.note("assigned", held)
        assert may_end.wait(PATIENCE_S)  # the worst a callback can do

    worker = ShardWorker(
        SERVICE, shards=1, on_assigned=block_the_loop, worker_id="a", **server.options(wire)
    )
    with worker:
        diary.wait_for("assigned")
        began_ms = server.members()["a"].last_heartbeat_ms
        look_until(lambda: server.members()["a"].last_heartbeat_ms >= began_ms + LEASE_MS)

        assert diary.held["assigned"].is_held
        may_end.set()


@WIRES
def test_a_coordinator_s_restart_costs_nobody_a_shard(
    server: ShardServer, diary: Diary, wire: str
) -> None:
    with keeper(diary, "a", **server.options(wire)) as one:
        diary.wait_for(*assigned("a", 0, 1, 2, 3))
        server.restart()
        began_ms = server.members()["a"].last_heartbeat_ms
        look_until(lambda: server.members()["a"].last_heartbeat_ms != began_ms)
        held = dict(one.held)

    assert [held[shard].epoch for shard in range(4)] == [1, 1, 1, 1]
    assert not any("lost" in line for line in diary.lines)


@WIRES
def test_a_worker_waits_for_its_coordinator(tmp_path: Path, diary: Diary, wire: str) -> None:
    with ShardServer(tmp_path, shard_lease_ms=LEASE_MS) as server:
        options = server.options(wire)
        server._settings["zmq_port"] = int(server.shards_url.rpartition(":")[2])
    with keeper(diary, "a", **options) as worker, server:
        diary.wait_for(*assigned("a", 0, 1, 2, 3))
        worker.stop()
        diary.wait_for(*[f"a revoked {shard}" for shard in range(4)])


def test_weights_and_limits_count(server: ShardServer, diary: Diary) -> None:
    with (
        keeper(diary, "a", shards=8, max_shards=2, **server.options("http")),
        keeper(diary, "b", shards=8, weight=2.0, **server.options("zeromq")),
        keeper(diary, "c", shards=8, weight=1.0, **server.options("http")),
    ):
        diary.wait(lambda: len(diary.lines) > 0)
        look_until(lambda: shard_counts(server) == [2, 4, 2])


def test_the_next_owner_reads_what_the_last_one_saved(server: ShardServer, diary: Diary) -> None:
    def save(held: HeldShard) -> None:
        held.save({"offset": 7, "by": "a"})
        diary.note(f"a saved {held.shard}", held)

    with keeper(diary, "a", shards=1, on_revoked=save, **server.options("http")):
        diary.wait_for("a assigned 0")
        assert diary.held["a assigned 0"].checkpoint() is None
    assert diary.lines[-1] == "a saved 0"
    with keeper(diary, "b", shards=1, **server.options("zeromq")):
        diary.wait_for("b assigned 0")
        held = diary.held["b assigned 0"]

        assert held.checkpoint() == {"offset": 7, "by": "a"}
        assert held.epoch == 2
    with pytest.raises(StaleEpoch):
        diary.held["a assigned 0"].save("too late")


def test_a_checkpoint_of_an_old_epoch_is_refused_by_the_coordinator(
    server: ShardServer, diary: Diary
) -> None:
    for name in ("a", "b"):
        with keeper(diary, name, shards=1, **server.options("http")):
            diary.wait_for(f"{name} assigned 0")
            if name == "a":
                diary.held["a assigned 0"].save("from a")
                continue
            with Client.connect(server.url) as client, pytest.raises(StaleEpoch):
                client.run(save_checkpoint(SERVICE, 0, epoch=1, value="from a, late"))
            assert diary.held["b assigned 0"].checkpoint() == "from a"


def test_a_task_s_result_is_refused_when_its_shard_has_moved_on(
    server: ShardServer, diary: Diary
) -> None:
    app = Rota(server.url)
    app.enqueue("count")
    client = app.client
    me = client.run(calls.register_worker(WorkerRegistration(tasks=["count"])))
    request = LeaseRequest(incarnation=me.incarnation)
    (lease,) = client.run(calls.lease(me.id, request)).leases

    def outcome_of(held: HeldShard) -> str:
        result = ResultItem(task_id=lease.task_id, fence=lease.fence, ok=True, shard=held.claim)
        call = calls.report_results(me.id, incarnation=me.incarnation, results=[result])
        return client.run(call).outcomes[0].outcome

    with keeper(diary, "a", shards=1, **server.options("http")):
        diary.wait_for("a assigned 0")
    with keeper(diary, "b", shards=1, **server.options("http")):
        diary.wait_for("b assigned 0")

        assert outcome_of(diary.held["a assigned 0"]) == "stale_epoch"
        assert outcome_of(diary.held["b assigned 0"]) == "accepted"
    app.close()


def test_a_worker_without_a_server_has_an_embedded_coordinator(
    tmp_path: Path, diary: Diary
) -> None:
    with keeper(diary, "a", url=f"sqlite:///{tmp_path / 'own.db'}"):
        diary.wait_for(*assigned("a", 0, 1, 2, 3))


# --- who may ------------------------------------------------------------------------------------


def test_a_worker_comes_in_with_its_keys_and_only_as_itself(tmp_path: Path, diary: Diary) -> None:
    path = tmp_path / "keys.toml"
    create_keys(path)
    client = add_client(path, name="a", services=[SERVICE], workers=["a"])
    with ShardServer(tmp_path, zmq_keys=str(path)) as server:
        options = {
            "zmq": server.shards_url,
            "zmq_public_key": client.public,
            "zmq_secret_key": client.secret,
            "zmq_server_key": client.coordinator,
        }
        with keeper(diary, "a", **options):
            diary.wait_for(*assigned("a", 0, 1, 2, 3))

        with pytest.raises(Forbidden):
            keeper(diary, "b", **options).run()


def test_two_of_three_keys_are_refused(monkeypatch: pytest.MonkeyPatch, diary: Diary) -> None:
    monkeypatch.setenv("ROTA_ZMQ_PUBLIC_KEY", "x" * 40)

    with pytest.raises(Invalid, match="three keys"):
        keeper(diary, "a", zmq="tcp://127.0.0.1:5555", zmq_secret_key="x" * 40)


@pytest.mark.parametrize(
    "options",
    [{"zmq": "127.0.0.1"}, {"zmq": "tcp://127.0.0.1:1", "zmq_server_key": "short"}],
    ids=["address", "key"],
)
def test_an_address_that_is_none_ends_the_worker(diary: Diary, options: dict[str, str]) -> None:
    keys = {"zmq_public_key": "x", "zmq_secret_key": "x"} if "zmq_server_key" in options else {}

    with pytest.raises(Invalid, match="cannot connect to"):
        keeper(diary, "a", **options, **keys).run()


def test_checkpoints_need_a_url(
    monkeypatch: pytest.MonkeyPatch, server: ShardServer, diary: Diary
) -> None:
    monkeypatch.delenv("ROTA_URL", raising=False)
    with keeper(diary, "a", zmq=server.shards_url):
        diary.wait_for("a assigned 0")

        with pytest.raises(Invalid, match="go over HTTP"):
            diary.held["a assigned 0"].checkpoint()


def test_the_environment_says_where_the_coordinator_is(
    monkeypatch: pytest.MonkeyPatch, server: ShardServer, diary: Diary
) -> None:
    monkeypatch.setenv("ROTA_ZMQ", server.shards_url)
    monkeypatch.setenv("ROTA_URL", free_url())

    with keeper(diary, "a"):
        diary.wait_for(*assigned("a", 0, 1, 2, 3))


# --- how it is used -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"shards": 0}, "maxShardCount"),
        ({"weight": 0.0}, "weight"),
        ({"max_shards": -1}, "maxShards"),
        ({"drain_s": -1.0}, "drain_s"),
    ],
    ids=["shards", "weight", "max_shards", "drain_s"],
)
def test_a_worker_that_cannot_be_is_refused_at_once(
    diary: Diary, options: dict[str, float], problem: str
) -> None:
    with pytest.raises(Invalid, match=problem):
        keeper(diary, "a", **options)


async def test_a_worker_runs_once_at_a_time(server: ShardServer, diary: Diary) -> None:
    worker = keeper(diary, "a", **server.options("http"))
    running = asyncio.create_task(worker.arun())
    await asyncio.sleep(0)

    with pytest.raises(Invalid, match="running already"):
        await worker.arun()
    worker.stop()
    assert await running is StopReason.STOPPED


async def test_a_worker_that_is_broken_does_not_go_on(server: ShardServer, diary: Diary) -> None:
    worker = keeper(diary, "a", **server.options("http"))
    running = asyncio.create_task(worker.arun())
    await asyncio.to_thread(diary.wait_for, "a assigned 0")

    assert worker._driver_loop is not None
    worker._driver_loop.call_soon_threadsafe(lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        await running


@WIRES
async def test_a_cancelled_run_leaves_at_once(server: ShardServer, diary: Diary, wire: str) -> None:
    worker = keeper(diary, "a", **server.options(wire))
    running = asyncio.create_task(worker.arun())
    await asyncio.to_thread(diary.wait_for, *assigned("a", 0, 1, 2, 3))

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    # It said that it left, long before its lease is over.
    await asyncio.to_thread(look_until, lambda: not server.members())
    assert sorted(diary.lines)[4:] == [f"a lost {shard}" for shard in range(4)]
