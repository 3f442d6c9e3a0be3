from typing import Any

import pytest

from tests.gateways.serving import Api, held


async def test_a_result_is_accepted_once_and_known_as_a_duplicate_after(api: Api) -> None:
    worker = await api.register()
    task = await api.submit()
    (lease,) = await worker.lease()

    first = await worker.finish(lease, {"n": 1})
    second = await worker.finish(lease, {"n": 2})

    assert (first, second) == ("accepted", "duplicate")
    done = await api.task(task["id"])
    assert (done["state"], done["result"], done["error"]) == ("succeeded", {"n": 1}, None)
    assert done["finished_at_ms"] == api.clock.now_ms()


async def test_outcomes_stand_in_the_order_of_the_results(api: Api) -> None:
    worker = await api.register()
    for _ in range(2):
        await api.submit()
    first, second = await worker.lease()

    answer = await worker.report(
        {"task_id": "nonsense", "fence": 1, "ok": True},
        {**held(first), "ok": True, "result": None},
        {"task_id": "0000000000000001", "fence": 1, "ok": True},
        {**held(second), "fence": 7, "ok": True},
        {**held(second), "ok": False, "error": None},
    )

    outcomes = [one["outcome"] for one in answer.json()["outcomes"]]
    assert outcomes == ["unknown", "accepted", "unknown", "stale", "accepted"]
    assert answer.json()["outcomes"][0]["task_id"] == "nonsense"


async def test_a_report_without_results_is_answered_without_outcomes(api: Api) -> None:
    worker = await api.register()

    answer = await worker.report()

    assert (answer.status_code, answer.json()) == (200, {"outcomes": []})


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("it broke", {"type": "Error", "message": "it broke", "retryable": True, "details": None}),
        (
            {"type": "KeyError", "message": "x", "details": {"line": 3}},
            {"type": "KeyError", "message": "x", "retryable": True, "details": {"line": 3}},
        ),
    ],
)
async def test_a_failed_attempt_is_scheduled_again_with_its_error(
    api: Api, error: Any, shown: Any
) -> None:
    worker = await api.register()
    task = await api.submit()
    (lease,) = await worker.lease()

    assert await worker.fail(lease, error, retry_in_ms=500) == "accepted"

    waiting = await api.task(task["id"])
    assert (waiting["state"], waiting["attempt"]) == ("scheduled", 1)
    assert waiting["run_at_ms"] == api.clock.now_ms() + 500
    assert waiting["error"] == shown


async def test_an_error_that_is_not_retryable_ends_the_task(api: Api) -> None:
    worker = await api.register()
    task = await api.submit()
    (lease,) = await worker.lease()

    await worker.fail(lease, {"message": "no use", "retryable": False})

    failed = await api.task(task["id"])
    assert (failed["state"], failed["error"]["message"]) == ("failed", "no use")


async def test_a_snooze_uses_up_no_attempt(api: Api) -> None:
    worker = await api.register()
    task = await api.submit()
    (lease,) = await worker.lease()

    answer = await worker.report({**held(lease), "snooze_ms": 1_000})

    assert answer.json()["outcomes"][0]["outcome"] == "accepted"
    waiting = await api.task(task["id"])
    assert (waiting["state"], waiting["attempt"]) == ("scheduled", 0)


async def test_a_rate_limited_result_closes_the_rates_of_its_task(api: Api) -> None:
    worker = await api.register()
    task = await api.submit(rate={"key": "openai", "limit": 10})
    (lease,) = await worker.lease()

    await worker.report({**held(lease), "snooze_ms": 60_000, "rate_limited": True})

    waiting = await api.task(task["id"])
    limit = (await api.get("/api/limits/openai")).json()
    assert (waiting["state"], waiting["attempt"]) == ("scheduled", 0)
    assert limit["opens_at_ms"] == waiting["run_at_ms"] == api.clock.now_ms() + 60_000


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({}, "ok"),
        ({"result": 1}, "ok"),
        ({"error": "x"}, "ok"),
        ({"ok": True, "error": "x"}, "error"),
        ({"ok": True, "snooze_ms": 1}, "snooze_ms"),
        ({"ok": False, "rate_limited": True}, "rate_limited"),
        ({"ok": False, "result": 1}, "result"),
        ({"ok": False, "error": {"kind": "x"}}, "kind"),
        ({"ok": "yes"}, "ok"),
    ],
)
async def test_a_bad_result_is_refused_by_index_and_field(api: Api, item: Any, field: str) -> None:
    worker = await api.register()
    good = {"task_id": "0" * 16, "fence": 1, "ok": True}

    answer = await worker.report(good, {"task_id": "0" * 16, "fence": 1, **item})

    assert answer.status_code == 400
    assert (answer.json()["index"], answer.json()["field"]) == (1, field)


async def test_a_worker_that_was_silent_too_long_loses_its_leases(api: Api) -> None:
    worker = await api.register(heartbeat_interval_ms=1_000)
    task = await api.submit()
    (lease,) = await worker.lease()

    for _ in range(9):  # in small steps: a jump would look as if the coordinator had been away
        await api.turn(500)
    answer = await worker.report({**held(lease), "ok": True})

    assert (answer.status_code, answer.json()["code"]) == (404, "worker_not_found")
    assert (await api.task(task["id"]))["state"] == "queued"


# --- progress ----------------------------------------------------------------------------------


async def test_progress_and_partial_results_are_shown(api: Api) -> None:
    worker = await api.register()
    task = await api.submit()
    (lease,) = await worker.lease()

    as_array = await worker.call("progress", [{**held(lease), "progress": 0.5}])
    as_object = await worker.call(
        "progress",
        {"incarnation": worker.incarnation, "items": [{**held(lease), "partial": ["a"]}]},
    )

    assert as_array.json()["outcomes"] == [{"task_id": task["id"], "outcome": "accepted"}]
    assert as_object.status_code == 200
    running = await api.task(task["id"])
    assert (running["progress"], running["partial"]) == (0.5, ["a"])


async def test_progress_of_one_stale_or_unknown_task_is_an_error(api: Api) -> None:
    worker = await api.register()
    await api.submit()
    (lease,) = await worker.lease()
    unknown = {"task_id": "0000000000000001", "fence": 1, "progress": 1}

    stale = await worker.call("progress", [{**held(lease), "fence": 9, "progress": 1}])
    missing = await worker.call("progress", [unknown])
    both = await worker.call("progress", [{**held(lease), "progress": 1}, unknown])

    assert (stale.status_code, stale.json()["code"]) == (409, "stale_lease")
    assert stale.json()["outcomes"][0]["outcome"] == "stale"
    assert (missing.status_code, missing.json()["code"]) == (404, "task_not_found")
    assert both.status_code == 200
    assert [one["outcome"] for one in both.json()["outcomes"]] == ["accepted", "unknown"]


async def test_progress_that_says_nothing_is_refused(api: Api) -> None:
    worker = await api.register()

    answer = await worker.call("progress", [{"task_id": "0" * 16, "fence": 1}])

    assert (answer.status_code, answer.json()["field"]) == (400, "progress")
