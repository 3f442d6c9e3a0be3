from pathlib import Path
from typing import Any

import pytest

from rota.core import limits
from tests.gateways.membership import FEED, SERVICE, Member, pass_time, two
from tests.gateways.serving import Api, Json, held, served

# --- checkpoints ----------------------------------------------------------------------------------


async def save(api: Api, shard: object, body: Json) -> Any:
    return await api.client.put(f"{FEED}/shards/{shard}/checkpoint", json=body)


async def test_a_checkpoint_is_kept_for_the_next_owner(api: Api) -> None:
    a, b = await two(api)
    none = await api.get(f"{FEED}/shards/0/checkpoint")

    saved = await save(api, 0, {"epoch": a.epoch(0), "value": {"offset": 1, "ö": [None]}})
    await a.leave()
    await pass_time(api, 500)
    await b.beat()
    found = await api.get(f"{FEED}/shards/0/checkpoint")

    assert none.json() == {
        "service": SERVICE,
        "shard": 0,
        "epoch": 0,
        "value": None,
        "saved_at_ms": None,
    }
    assert saved.json() == found.json()
    assert found.json() == {
        "service": SERVICE,
        "shard": 0,
        "epoch": 1,
        "value": {"offset": 1, "ö": [None]},
        "saved_at_ms": api.clock.now_ms() - 500,
    }


async def test_a_checkpoint_of_an_owner_of_old_is_refused(api: Api) -> None:
    a, b = await two(api)
    await save(api, 0, {"epoch": 1, "value": 1})
    await a.leave()
    await pass_time(api, 500)
    await b.beat()
    await save(api, 0, {"epoch": b.epoch(0), "value": 2})

    stale = await save(api, 0, {"epoch": 1, "value": 3})
    never = await save(api, 0, {"epoch": 99})
    beyond = await save(api, 10, {"epoch": 1})

    for answer in (stale, never, beyond):
        assert (answer.status_code, answer.json()["code"]) == (409, "stale_epoch")
    assert (stale.json()["shard"], stale.json()["epoch"]) == (0, 1)
    assert (await api.get(f"{FEED}/shards/0/checkpoint")).json()["value"] == 2


async def test_a_checkpoint_may_be_null(api: Api) -> None:
    await Member(api, "a").register()
    await save(api, 0, {"epoch": 1, "value": 5})

    for body in ({"epoch": 1, "value": None}, {"epoch": 1}):
        answer = await save(api, 0, body)
        assert (answer.status_code, answer.json()["value"]) == (200, None)
        assert answer.json()["epoch"] == 1


@pytest.mark.parametrize("shard", ["x", "-1", "1.0", limits.MAX_SHARDS, "9" * 5_000, "%D9%A3"])
async def test_a_shard_is_a_number(api: Api, shard: object) -> None:
    await Member(api, "a").register()

    for answer in (
        await save(api, shard, {"epoch": 1}),
        await api.get(f"{FEED}/shards/{shard}/checkpoint"),
    ):
        assert (answer.status_code, answer.json()["field"]) == (400, "shard")


async def test_a_checkpoint_has_its_limits(tmp_path: Path) -> None:
    async with served(tmp_path, max_payload_bytes=1_024) as api:
        await Member(api, "a").register()

        large = await save(api, 0, {"epoch": 1, "value": "x" * 1_024})
        nothing = await save(api, 0, {"value": 1})
        deep: Json = None
        for _ in range(limits.MAX_JSON_DEPTH + 1):
            deep = [deep]
        nested = await save(api, 0, {"epoch": 1, "value": deep})

    assert (large.status_code, large.json()["field"]) == (413, "value")
    assert (nothing.status_code, nothing.json()["field"]) == (400, "epoch")
    assert (nested.status_code, nested.json()["field"]) == (400, "value")


# --- results under a claim ------------------------------------------------------------------------


def claim(shard: int, epoch: int, service: str = SERVICE) -> Json:
    return {"service": service, "shard": shard, "epoch": epoch}


async def outcome(answer: Any) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["outcomes"][0]["outcome"])


async def test_a_result_with_a_stale_epoch_is_refused_and_the_lease_stays(api: Api) -> None:
    a, b = await two(api)
    worker = await api.register(heartbeat_interval_ms=60_000)
    task = await api.submit()
    (lease,) = await worker.lease()
    old = claim(0, a.epoch(0))
    await a.leave()
    await pass_time(api, 500)
    await b.beat()

    result = {**held(lease), "ok": True, "result": 1}
    refused = await outcome(await worker.report({**result, "shard": old}))
    during = await api.task(task["id"])
    unknown = await outcome(await worker.report({**result, "shard": claim(0, 1, "other")}))
    taken = await outcome(await worker.report({**result, "shard": claim(0, b.epoch(0))}))

    assert (refused, unknown, taken) == ("stale_epoch", "stale_epoch", "accepted")
    assert (during["state"], during["worker_id"], during["attempt"]) == ("running", "w1", 1)
    assert (await api.task(task["id"]))["result"] == 1


async def test_a_failure_with_a_stale_epoch_is_refused_too(api: Api) -> None:
    await Member(api, "a").register()
    worker = await api.register()
    await api.submit()
    (lease,) = await worker.lease()

    assert await worker.fail(lease, shard=claim(0, 2)) == "stale_epoch"
    assert await worker.fail(lease, shard=claim(0, 1)) == "accepted"


@pytest.mark.parametrize(
    ("named", "field"),
    [
        ({"service": SERVICE, "shard": 0}, "epoch"),
        ({"service": "", "shard": 0, "epoch": 1}, "service"),
        ({"service": SERVICE, "shard": -1, "epoch": 1}, "shard"),
        ({"service": SERVICE, "shard": 0, "epoch": 1, "fence": 1}, "fence"),
        (7, "shard"),
    ],
    ids=str,
)
async def test_a_bad_claim_names_its_field(api: Api, named: Json, field: str) -> None:
    worker = await api.register()

    answer = await worker.report({"task_id": "1", "fence": 1, "ok": True, "shard": named})

    assert (answer.status_code, answer.json()["field"]) == (400, field)
