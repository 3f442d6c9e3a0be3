"""Schedules over HTTP: made, changed, fired, looked at, refused."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest

from rota.core import limits
from tests.gateways.serving import Api, Json
from tests.gateways.test_access import token
from tests.gateways.test_kv import refusal

START_MS = 1_800_000_000_000
MINUTE_MS = 60_000
TASK = {"name": "clean", "queue": "mail", "payload": {"a": 1}}
EVERY_MINUTE = {"every_ms": MINUTE_MS, "task": TASK}
WAITS = '{"initial_node": "n", "nodes": {"n": {"wait_for": {"event": "go"}}}, "transitions": []}'


def path(name: str = "clean", verb: str = "") -> str:
    return f"/api/schedules/{name}" + (f"/{verb}" if verb else "")


async def send(api: Api, name: str = "clean", **body: Any) -> httpx.Response:
    return await api.client.put(path(name), json={**EVERY_MINUTE, **body})


async def put(api: Api, name: str = "clean", **body: Any) -> Json:
    answer = await send(api, name, **body)
    assert answer.status_code in {200, 201}, answer.text
    return answer.json()


async def look(api: Api, name: str = "clean") -> Json:
    return (await api.get(path(name))).json()


# --- making and showing -------------------------------------------------------------------------


async def test_a_schedule_is_made_shown_fired_and_deleted(api: Api) -> None:
    made = await send(api, jitter_ms=0, timezone="Europe/Berlin")
    await api.turn(MINUTE_MS)
    shown = await look(api)
    gone = await api.delete(path())

    assert made.status_code == 201
    assert made.json()["next_at_ms"] == START_MS + MINUTE_MS
    (firing,) = shown["firings"]
    assert (firing["nominal_ms"], firing["outcome"]) == (START_MS + MINUTE_MS, "fired")
    assert shown["next_at_ms"] == START_MS + 2 * MINUTE_MS
    assert shown["last_fired_at_ms"] == START_MS + MINUTE_MS
    assert (shown["task"], shown["fired"], shown["overlap"]) == (TASK, 1, "skip")
    task = await api.task(firing["task_id"])
    assert (task["queue"], task["payload"]) == ("mail", {"a": 1})
    assert task["key"] == f"schedule:clean:{START_MS + MINUTE_MS}"
    assert gone.status_code == 200
    assert (await api.get(path())).status_code == 404


async def test_a_second_put_changes_the_schedule(api: Api) -> None:
    await put(api)
    answer = await send(api, cron="0 3 * * *", every_ms=None, pause_on_failure=3)

    assert answer.status_code == 200
    view = answer.json()
    assert (view["cron"], view["every_ms"], view["pause_on_failure"]) == ("0 3 * * *", None, 3)


async def test_a_schedule_starts_a_run(api: Api) -> None:
    await api.client.put("/api/workflows/waits", content=WAITS)
    await api.client.put(
        path(), json={"cron": "* * * * *", "run": {"workflow": "waits", "input": {"a": 1}}}
    )

    await api.turn(MINUTE_MS)

    (firing,) = (await look(api))["firings"]
    run = (await api.get(f"/api/runs/{firing['run_id']}")).json()
    assert run["context"]["input"] == {"a": 1}


async def test_schedules_are_listed_by_name_with_their_last_firing(api: Api) -> None:
    for name in ("b", "a", "c"):
        await put(api, name, overlap="allow")
    await api.turn(MINUTE_MS)
    await api.turn(MINUTE_MS)

    first = (await api.get("/api/schedules?limit=2")).json()
    second = (await api.get(f"/api/schedules?limit=2&cursor={first['next_cursor']}")).json()

    assert [one["name"] for one in first["items"]] == ["a", "b"]
    assert [one["name"] for one in second["items"]] == ["c"]
    (last,) = first["items"][0]["firings"]
    assert last["nominal_ms"] == START_MS + 2 * MINUTE_MS


# --- times --------------------------------------------------------------------------------------


async def test_the_next_times_of_a_schedule_and_of_one_that_is_not_stored(api: Api) -> None:
    await put(api)
    await api.post(path(verb="pause"))

    stored = await api.get(path(verb="next") + f"?count=2&after_ms={START_MS + 1}")
    preview = await api.post(
        "/api/schedules/preview?count=2", {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}
    )

    assert stored.json() == {"items": [START_MS + MINUTE_MS, START_MS + 2 * MINUTE_MS]}
    first, second = preview.json()["items"]
    assert second - first == 24 * 60 * MINUTE_MS


async def test_a_preview_follows_a_zone_that_shifts_by_half_an_hour(api: Api) -> None:
    zone = ZoneInfo("Australia/Lord_Howe")
    after = datetime(2026, 10, 3, 12, tzinfo=zone)  # the night before the clock goes forward

    preview = await api.post(
        f"/api/schedules/preview?count=4&after_ms={round(after.timestamp() * 1000)}",
        {"cron": ["15 2 * * *", "0 3 * * *"], "timezone": "Australia/Lord_Howe"},
    )

    shown = [datetime.fromtimestamp(one / 1000, zone) for one in preview.json()["items"]]
    assert [one.strftime("%d %H:%M %z") for one in shown] == [
        "04 02:30 +1100",  # 02:15 does not exist
        "04 03:00 +1100",
        "05 02:15 +1100",
        "05 03:00 +1100",
    ]


# --- on demand ----------------------------------------------------------------------------------


async def test_a_schedule_fires_on_demand(api: Api) -> None:
    await put(api)

    first = (await api.post(path(verb="run"))).json()
    second = (await api.post(path(verb="run"))).json()

    assert (first["outcome"], first["manual"]) == ("fired", True)
    assert (await api.task(first["task_id"]))["name"] == "clean"
    assert (second["outcome"], second["task_id"]) == ("skipped_overlap", None)


async def test_a_backfill_is_counted_before_it_is_made(api: Api) -> None:
    await put(api)
    body = {"from_ms": START_MS - 3 * MINUTE_MS, "to_ms": START_MS, "overlap": "allow"}

    counted = await api.post(path(verb="backfill"), {**body, "dry_run": True})
    none_yet = (await look(api))["firings"]
    made = await api.post(path(verb="backfill"), body)

    assert (counted.json(), none_yet, made.json()) == ({"count": 3}, [], {"count": 3})
    assert len((await look(api))["firings"]) == 3


async def test_a_schedule_is_paused_with_a_note_and_resumed(api: Api) -> None:
    await put(api)

    paused = (await api.post(path(verb="pause"), {"note": "moving house"})).json()
    await api.turn(5 * MINUTE_MS)
    resumed = (await api.post(path(verb="resume"))).json()

    assert (paused["paused"], paused["note"], paused["next_at_ms"]) == (True, "moving house", None)
    assert paused["paused_at_ms"] == START_MS
    assert (resumed["paused"], resumed["note"]) == (False, None)
    assert resumed["next_at_ms"] == START_MS + 6 * MINUTE_MS
    assert resumed["firings"] == []


async def test_a_pause_names_who_paused(api: Api) -> None:
    who = await token(api, "submit")
    await put(api)

    paused = await api.client.post(path(verb="pause"), headers=who)

    assert (paused.json()["paused_by"], paused.json()["note"]) == ("submit", None)


async def test_a_schedule_may_be_made_paused(api: Api) -> None:
    made = await put(api, paused=True)
    kept = await put(api, overlap="allow")
    resumed = await put(api, overlap="allow", paused=False)

    assert [one["paused"] for one in (made, kept, resumed)] == [True, True, False]


# --- schedules in code --------------------------------------------------------------------------


def synced(*names: str, **changes: Any) -> Json:
    body = {**EVERY_MINUTE, **changes}
    return {"source": "shop", "items": [{"name": name, "schedule": body} for name in names]}


async def test_the_code_makes_and_changes_its_schedules(api: Api) -> None:
    made = (await api.post("/api/schedules/sync", synced("a", "b"))).json()
    same = (await api.post("/api/schedules/sync", synced("a", "b"))).json()
    changed = (await api.post("/api/schedules/sync", synced("a", "b", jitter_ms=5))).json()

    assert (made["changed"], same["unchanged"], changed["changed"]) == (["a", "b"],) * 3
    assert (await look(api, "a"))["source"] == "shop"


async def test_an_edit_of_an_operator_is_pinned_until_it_is_unpinned(api: Api) -> None:
    await api.post("/api/schedules/sync", synced("a"))
    edited = await put(api, "a", jitter_ms=7)

    left = (await api.post("/api/schedules/sync", synced("a", jitter_ms=8))).json()
    pinned = await look(api, "a")
    await put(api, "a", jitter_ms=7, pinned=False)
    followed = (await api.post("/api/schedules/sync", synced("a", jitter_ms=9))).json()

    assert edited["pinned"]
    assert (left["pinned"], pinned["jitter_ms"]) == (["a"], 7)
    assert (followed["changed"], (await look(api, "a"))["jitter_ms"]) == (["a"], 9)


async def test_a_schedule_that_the_code_no_longer_has_is_orphaned_and_goes_on(api: Api) -> None:
    await api.post("/api/schedules/sync", synced("a", "b"))

    gone = (await api.post("/api/schedules/sync", synced("b"))).json()
    await api.turn(MINUTE_MS)
    orphan = await look(api, "a")
    back = (await api.post("/api/schedules/sync", synced("a", "b"))).json()

    assert gone["orphaned"] == ["a"]
    assert (orphan["orphaned"], len(orphan["firings"])) == (True, 1)
    assert back["orphaned"] == []
    assert not (await look(api, "a"))["orphaned"]


async def test_a_sync_is_taken_as_a_whole_or_not_at_all(api: Api) -> None:
    body = synced("a", "b")
    body["items"][1]["schedule"] = {"at_ms": [1], "task": TASK}

    answer = await api.post("/api/schedules/sync", body)

    assert refusal(answer) == (400, "invalid", "cron")
    assert (await api.get("/api/schedules")).json()["items"] == []


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"every_ms": None}, "cron"),
        ({"cron": "61 * * * *"}, "cron"),
        ({"cron": "0 0 30 2 *", "every_ms": None}, "cron"),
        ({"at_ms": [1], "every_ms": None}, "cron"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"every_ms": 10}, "every_ms"),
        ({"exclude": ["2026-02-30"]}, "exclude"),
        ({"task": None}, "task"),
        ({"run": {"workflow": "w"}}, "task"),
        ({"task": {**TASK, "key": "k"}}, "key"),
        ({"task": {**TASK, "run_at_ms": 1}}, "run_at_ms"),
        ({"task": {**TASK, "payload": [1]}, "with_times": True}, "task.payload"),
        ({"overlap": "maybe"}, "overlap"),
        ({"unheard_of": 1}, "unheard_of"),
    ],
)
async def test_what_means_nothing_is_refused_with_its_field(
    api: Api, body: Json, field: str
) -> None:
    assert refusal(await send(api, **body)) == (400, "invalid", field)


async def test_a_schedule_that_is_too_large_is_refused(api: Api) -> None:
    payload = "x" * limits.MAX_SCHEDULE_BYTES

    answer = await send(api, task={**TASK, "payload": payload})

    assert answer.status_code == 413


async def test_the_number_of_schedules_is_limited(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_SCHEDULES", 2)
    for name in ("a", "b"):
        await put(api, name)

    refused = await send(api, "c")
    again = await send(api, "b")

    assert (refused.status_code, refused.json()["code"]) == (429, "too_many")
    assert again.status_code == 200


@pytest.mark.parametrize(
    ("method", "verb"),
    [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "pause"),
        ("POST", "resume"),
        ("POST", "run"),
        ("GET", "next"),
    ],
)
async def test_an_unknown_schedule_is_not_found(api: Api, method: str, verb: str) -> None:
    answer = await api.client.request(method, path("nobody", verb))

    assert (answer.status_code, answer.json()["code"]) == (404, "schedule_not_found")


# --- access -------------------------------------------------------------------------------------


async def test_a_bound_token_has_the_schedules_of_its_queues_alone(api: Api) -> None:
    mine = await token(api, "submit", queues=("mail",))
    await api.client.put(path("own"), json=EVERY_MINUTE, headers=mine)
    other = {**EVERY_MINUTE, "task": {**TASK, "queue": "secret"}}
    await api.client.put(path("other"), json=other)
    await api.client.put(path("run"), json={"cron": "* * * * *", "run": {"workflow": "w"}})

    listed = (await api.client.get("/api/schedules", headers=mine)).json()
    answers = [
        await api.client.put(path("other"), json=EVERY_MINUTE, headers=mine),
        await api.client.put(path("own"), json=other, headers=mine),
        await api.client.delete(path("run"), headers=mine),
        await api.client.put(
            path("new"), json={"cron": "* * * * *", "run": {"workflow": "w"}}, headers=mine
        ),
    ]

    assert [one["name"] for one in listed["items"]] == ["own"]
    assert [one.status_code for one in answers] == [403] * 4
    assert "secret" not in "".join(one.text for one in answers)


# --- events and metrics -------------------------------------------------------------------------


async def test_firings_are_events_and_are_counted(api: Api) -> None:
    await put(api)
    await api.turn(MINUTE_MS)
    await api.turn(MINUTE_MS)
    await api.post(path(verb="pause"), {"note": "n"})
    await api.post(path(verb="resume"))
    await api.delete(path())

    events = (await api.get("/api/events?last=100&type=schedule-*")).json()["items"]
    metrics = (await api.get("/metrics")).text

    assert [one["type"] for one in events] == [
        "schedule-put",
        "schedule-fired",
        "schedule-skipped",
        "schedule-paused",
        "schedule-resumed",
        "schedule-deleted",
    ]
    assert {one["subject"] for one in events} == {"clean"}
    fired, skipped = events[1]["data"], events[2]["data"]
    assert fired["nominal_ms"] == START_MS + MINUTE_MS
    assert fired["queue"] == "mail"
    assert skipped["outcome"] == "skipped_overlap"
    assert 'rota_schedule_firings_total{outcome="fired",queue="mail"} 1.0' in metrics
    assert 'rota_schedule_firings_total{outcome="skipped_overlap",queue="mail"} 1.0' in metrics
