from pathlib import Path
from typing import Any

from tests.gateways.serving import Api, served
from tests.gateways.working import Bench


async def lanes(api: Api) -> dict[str, Any]:
    return {one["name"]: one for one in (await api.get("/api/backlog")).json()["items"]}


async def test_the_overview_counts_tasks_by_state_and_workers_by_health(api: Api) -> None:
    worker = await api.register()
    for _ in range(4):
        await api.submit(max_attempts=1)
    await api.submit(delay_ms=60_000)
    first, second, *_ = await worker.lease(most=3)
    await worker.finish(first)
    await worker.fail(second)

    overview = (await api.get("/api/overview")).json()

    assert overview["tasks"] == {
        "scheduled": 1,
        "queued": 1,
        "running": 1,
        "succeeded": 1,
        "failed": 1,
        "cancelled": 0,
    }
    assert overview["workers"] == {"healthy": 1}
    assert (overview["queues"], overview["paused_queues"], overview["stuck"]) == (1, [], 0)
    assert overview["now_ms"] == api.clock.now_ms()


async def test_what_is_stuck_is_counted_and_explained(api: Api) -> None:
    await api.register(capabilities=["cpu"], queues=["default", "mail"])
    await api.submit(name="render", requires=["gpu"])
    await api.submit(name="send", queue="mail")
    await api.submit(name="store", queue="elsewhere")
    await api.submit(name="fine")
    await api.post("/api/queues/mail/pause")
    api.clock.turn(2_000)

    found = await lanes(api)
    overview = (await api.get("/api/overview")).json()

    codes = {name: one["why"]["code"] for name, one in found.items()}
    assert codes == {
        "render": "no_worker_with_capability",
        "send": "queue_paused",
        "store": "no_worker_for_queue",
        "fine": "ready",
    }
    assert "'gpu'" in found["render"]["why"]["text"]
    assert found["render"]["oldest_age_ms"] == 2_000
    assert list(found)[-1] == "fine"  # what is stuck comes first
    assert (overview["stuck"], overview["paused_queues"]) == (3, ["mail"])


async def test_a_timeline_tells_of_every_attempt_and_why_the_task_waits(api: Api) -> None:
    worker = await api.register()
    task = await api.submit(max_attempts=3)
    (lease,) = await worker.lease()
    api.clock.turn(500)
    await worker.fail(lease, {"type": "OSError", "message": "no route"})

    timeline = (await api.get(f"/api/tasks/{task['id']}/timeline")).json()

    (attempt,) = timeline["attempts"]
    assert (attempt["attempt"], attempt["ending"], attempt["worker_id"]) == (1, "failed", "w1")
    assert attempt["error"]["message"] == "no route"
    assert [one["event_type"] for one in timeline["events"]] == ["created", "started", "failed"]
    assert timeline["state"] == "scheduled"
    assert timeline["why"]["code"] == "retry_later"
    assert "OSError: no route" in timeline["why"]["text"]


async def test_a_queued_task_says_how_many_are_before_it(api: Api) -> None:
    worker = await api.register(max_concurrent_tasks=1)
    tasks = [await api.submit() for _ in range(4)]
    await worker.lease(most=1)

    timeline = (await api.get(f"/api/tasks/{tasks[3]['id']}/timeline")).json()

    assert timeline["why"]["code"] == "workers_busy"
    assert timeline["why"]["text"].startswith("2 of its kind are before it; all 1 places")


async def test_a_task_that_never_was_has_no_timeline(api: Api) -> None:
    answer = await api.get("/api/tasks/00000000000000ff/timeline")

    assert (answer.status_code, answer.json()["code"]) == (404, "task_not_found")


async def test_the_last_hour_is_charted_in_slots(api: Api) -> None:
    worker = await api.register(heartbeat_interval_ms=3_600_000)
    for _ in range(3):
        await api.submit(queue="mail")
    await api.submit(queue="slow")
    (lease, *_) = await worker.lease(most=1)
    await worker.finish(lease)
    await api.turn(10_000)

    page = (await api.get("/api/series")).json()
    mail = (await api.get("/api/series?queue=mail")).json()["items"]

    everything = page["items"][0]
    assert page["slot_ms"] == 10_000
    assert everything["queue"] is None
    assert [one["queue"] for one in page["items"][1:]] == ["mail", "slow"]
    assert len(everything["submitted"]) == 360
    assert everything["submitted"][-2:] == [4, 0]
    assert everything["finished"][-2] == 1
    assert everything["depth"][-1] == 3
    assert [one["queue"] for one in mail] == ["mail"]


async def test_a_chart_of_a_queue_nobody_knows_is_empty(api: Api) -> None:
    page = (await api.get("/api/series?queue=nowhere")).json()

    assert page["items"] == []


async def test_the_last_hour_outlives_a_restart(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        worker = await api.register(heartbeat_interval_ms=3_600_000)
        await api.submit(queue="mail")
        await api.submit(queue="mail")
        (lease, *_) = await worker.lease(most=1)
        await worker.finish(lease)
        await api.turn(60_000)
        await api.submit(queue="mail")

    async with served(tmp_path) as api:
        api.clock.turn(60_000)
        (everything, mail) = (await api.get("/api/series")).json()["items"]

    assert mail["queue"] == "mail"
    assert [value for value in mail["submitted"] if value] == [2, 1]
    assert [value for value in everything["finished"] if value] == [1]


WAITING = """
name: waiting
initial_node: begin
nodes:
  begin: {}
  work: {task: work}
  approve: {approval: {}}
transitions:
  - {id: fan, from: begin, to: work, spawn_count: 3}
  - {from: work, to: approve, synchronization: {joins_transition: fan}}
"""


async def test_the_activity_of_runs_counts_their_live_tasks_by_name_and_state(api: Api) -> None:
    bench = await Bench.at(api)
    await bench.put(WAITING)
    working, waiting = await bench.start("waiting"), await bench.start("waiting")
    leases = await bench.worker.lease(most=6)
    of_first, of_second = leases[:3], leases[3:]
    for lease in of_second:
        await bench.worker.finish(lease)
    await bench.worker.finish(of_first[0])
    await bench.worker.fail(of_first[1])

    page = (await api.get(f"/api/runs/activity?run={working}&run={waiting}")).json()

    first, second = page["items"]
    alike = {"name": "work", "queue": "default", "count": 1}
    assert first["run_id"] == working
    assert sorted(first["tasks"], key=lambda one: one["state"]) == [
        {**alike, "state": "running"},
        {**alike, "state": "scheduled"},
    ]
    assert first["text"] == "1 of 3 branches of 'fan' running"
    assert second == {
        "run_id": waiting,
        "tasks": [],
        "text": "approval: approve",
        "until_ms": None,
    }
    assert page == (await api.get(f"/api/standings?run={working}&run={waiting}")).json()
