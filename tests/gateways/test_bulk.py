from typing import Any

import pytest

from tests.gateways.serving import Api


async def states(api: Api) -> dict[str, int]:
    counts: dict[str, int] = {}
    for task in (await api.get("/api/tasks?limit=1000")).json()["items"]:
        counts[task["state"]] = counts.get(task["state"], 0) + 1
    return counts


async def submit_some(api: Api) -> None:
    for queue, count in (("a", 3), ("b", 2)):
        await api.post("/api/tasks", [{"name": "work", "queue": queue}] * count)


async def test_a_dry_run_counts_and_changes_nothing(api: Api) -> None:
    await submit_some(api)

    answer = await api.post("/api/tasks/cancel", {"queue": "a", "dry_run": True})

    assert (answer.status_code, answer.json()) == (200, {"count": 3, "dry_run": True})
    assert await states(api) == {"queued": 5}


async def test_a_bulk_cancel_takes_only_what_matches(api: Api) -> None:
    await submit_some(api)

    answer = await api.post("/api/tasks/cancel", {"queue": "a"})

    assert answer.json() == {"count": 3, "dry_run": False}
    assert await states(api) == {"cancelled": 3, "queued": 2}


async def test_a_bulk_retry_takes_failed_tasks_by_default(api: Api) -> None:
    await api.post("/api/tasks", [{"name": "work", "max_attempts": 1}] * 2)
    worker = await api.register()
    for lease in await worker.lease():
        await worker.fail(lease)
    await api.post("/api/tasks", [{"name": "other"}])
    await api.post("/api/tasks/cancel", {"name": "other"})
    assert await states(api) == {"failed": 2, "cancelled": 1}

    answer = await api.post("/api/tasks/retry", {"queue": "default"})

    assert answer.json()["count"] == 2
    assert await states(api) == {"queued": 2, "cancelled": 1}


async def test_named_tasks_are_changed_if_they_are_there_and_match(api: Api) -> None:
    await submit_some(api)
    items = (await api.get("/api/tasks")).json()["items"]
    ids = [task["id"] for task in items] + ["0000000000000000", "nonsense"]

    dry = await api.post("/api/tasks/cancel", {"ids": ids, "queue": "b", "dry_run": True})
    done = await api.post("/api/tasks/cancel", {"ids": ids, "queue": "b"})

    assert (dry.json()["count"], done.json()["count"]) == (2, 2)
    assert await states(api) == {"queued": 3, "cancelled": 2}


async def test_a_bulk_change_must_say_which_tasks(api: Api) -> None:
    await submit_some(api)

    refused = await api.post("/api/tasks/cancel", {})
    dry = await api.post("/api/tasks/cancel", {"dry_run": True})

    assert (refused.status_code, refused.json()["code"]) == (400, "invalid")
    assert "say which tasks" in refused.json()["detail"]
    assert dry.json() == {"count": 5, "dry_run": True}


@pytest.mark.parametrize(
    ("body", "field"), [({"stat": "failed"}, "stat"), ({"state": "odd"}, "state"), ([], None)]
)
async def test_a_bad_filter_is_refused(api: Api, body: Any, field: str | None) -> None:
    answer = await api.post("/api/tasks/retry", body)

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert answer.json().get("field") == field


@pytest.mark.slow
async def test_a_bulk_change_takes_as_many_steps_as_it_needs(api: Api) -> None:
    await api.post("/api/tasks", [{"name": "work"}] * 2_500)

    answer = await api.post("/api/tasks/cancel", {"state": "queued"})

    assert answer.json()["count"] == 2_500
    assert (await api.get("/api/tasks?state=queued")).json()["items"] == []
