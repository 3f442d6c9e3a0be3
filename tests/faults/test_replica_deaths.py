"""Nothing is lost when the coordinator that a client talks to dies and does not come back."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.faults.callers import MAX_ATTEMPTS, PLAIN, Caller
from tests.faults.postgres import PostgresPlace
from tests.faults.processes import Scene, scene
from tests.gateways.websocket.talking import Peer

REPLICAS = 2
BRANCHES = 150
SHARDS = 10
MEMBERS = "/api/services/feed/members"
LIMIT_S = 300
WORKFLOW = {
    "initial_node": "begin",
    "nodes": {
        "begin": {},
        "double": {
            "task": PLAIN,
            "input": {"number": "branch.item"},
            "retry": {"max_attempts": MAX_ATTEMPTS},
        },
        "end": {},
    },
    "transitions": [
        {
            "id": "each",
            "from": "begin",
            "to": "double",
            "foreach": "input.numbers",
            "max_parallel": 4,
        },
        {
            "from": "double",
            "to": "end",
            "synchronization": {"joins_transition": "each", "merge": {"target": "output.all"}},
        },
    ],
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT_S)]


def die(staged: Scene) -> None:
    staged.coordinators[0].signal(signal.SIGKILL)
    staged.coordinators[0].ends()


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    caller = Caller([url])
    try:
        status, answer = caller.call(method, path, body)
    finally:
        caller.close()
    assert status in {200, 201}, answer
    return answer


def test_a_run_goes_on_when_the_replica_that_started_it_dies(
    tmp_path: Path, place: PostgresPlace
) -> None:
    numbers = list(range(BRANCHES))
    with scene(tmp_path, place, replicas=REPLICAS) as staged:
        first, second = staged.urls
        ask(first, "PUT", "/api/workflows/doubling", WORKFLOW)
        staged.start_plain_worker("plain")
        wish = {"workflow": "doubling", "input": {"numbers": numbers}}
        run_id = ask(first, "POST", "/api/runs", wish)["id"]

        staged.book.wait_for_more(10)
        die(staged)
        run = ask(second, "GET", f"/api/runs/{run_id}?wait_ms=60000")

    assert (run["state"], run["output"]) == ("completed", {"all": [2 * one for one in numbers]})
    assert staged.problems() == []


def test_a_member_keeps_its_shards_and_their_epochs_when_its_replica_dies(
    tmp_path: Path, place: PostgresPlace
) -> None:
    with scene(tmp_path, place, replicas=REPLICAS) as staged:
        first, second = staged.urls
        told = ask(first, "POST", MEMBERS, registration("a"))
        seq = 0
        while len(told.get("assignedShards", ())) < SHARDS:
            seq += 1
            told = ask(first, "POST", f"{MEMBERS}/a/heartbeat?wait_ms=2000", beat(told, seq))

        die(staged)
        after = ask(second, "POST", f"{MEMBERS}/a/heartbeat", beat(told, seq + 1))
        # What it does as their owner is accepted by the other, under the epochs it has.
        saved = {"epoch": told["shardEpochs"][0], "value": {"at": 7}}
        ask(second, "PUT", "/api/services/feed/shards/0/checkpoint", saved)

    assert after["assignedShards"] == told["assignedShards"] == list(range(SHARDS))
    assert after["shardEpochs"] == told["shardEpochs"]


def registration(worker_id: str) -> dict[str, Any]:
    return {"workerId": worker_id, "maxShardCount": SHARDS, "incarnation": 1}


def beat(told: Any, seq: int) -> dict[str, Any]:
    return {
        "maxShardCount": SHARDS,
        "assignedShards": told.get("assignedShards", []),
        "incarnation": 1,
        "generation": told.get("generation"),
        "seq": seq,
    }


async def test_a_session_hears_of_its_tasks_when_the_replica_it_was_open_at_dies(
    tmp_path: Path, place: PostgresPlace
) -> None:
    with scene(tmp_path, place, replicas=REPLICAS) as staged:
        first, second = (url.replace("http", "ws", 1) for url in staged.urls)
        async with connect(f"{first}/ws?session=client") as socket:
            client = Peer(socket)
            await client.pushed("SessionEstablished")
            async with connect(f"{second}/ws?session=worker") as other:
                worker = Peer(other)
                await worker.pushed("SessionEstablished")
                await worker.register("w")
                await client.assign({"taskId": "t", "payload": {"n": 1}})
                given = await worker.given()

                await asyncio.to_thread(die, staged)
                with pytest.raises(ConnectionClosed):
                    await client.receive()
                done = await worker.complete("t", "w", fence=given["fence"], result="T")
                async with connect(f"{second}/ws?session=client") as again:
                    back = Peer(again)
                    await back.pushed("SessionEstablished")
                    news = await back.pushed("TaskCompleted")

    assert done == {"status": "completed", "taskId": "t"}
    assert news["payload"] == {"taskId": "t", "result": "T"}
