from pathlib import Path

import httpx
import pytest

from rota.engine.runs.artifact_io import LARGEST_IN_ROW
from tests.gateways.serving import Api, Json, called, served
from tests.gateways.test_access import closed, token
from tests.gateways.working import Bench

__all__ = ["closed"]  # a fixture

ONE = """
name: one
initial_node: a
nodes: {a: {task: work, retry: {max_attempts: 2, backoff: {kind: none}}}}
"""
LARGE = b"0123456789abcdef" * (LARGEST_IN_ROW // 16 + 1)


@pytest.fixture
async def bench(api: Api) -> Bench:
    bench = await Bench.at(api)
    await bench.put(ONE)
    return bench


async def attach(
    bench: Bench, run_id: str, lease: Json, name: str, content: bytes, **headers: str
) -> httpx.Response:
    return await bench.api.client.put(
        f"/api/runs/{run_id}/artifacts/{name}",
        params={"task_id": lease["task_id"], "fence": lease["fence"]},
        content=content,
        headers=headers,
    )


def files(folder: Path) -> list[Path]:
    place = folder / "rota.db.artifacts"
    return sorted(place.iterdir()) if place.is_dir() else []


@pytest.mark.parametrize("content", [b"", b"small", LARGE])
async def test_an_artifact_is_the_runs_when_its_task_has_succeeded(
    bench: Bench, content: bytes
) -> None:
    run_id = await bench.start("one")
    (lease,) = await bench.worker.lease()
    path = f"/api/runs/{run_id}/artifacts"

    staged = await attach(bench, run_id, lease, "a.txt", content, **{"content-type": "text/plain"})
    before = await bench.items(path)
    missing = await bench.api.get(f"{path}/a.txt")
    await bench.worker.finish(lease)
    (listed,) = await bench.items(path)
    got = await bench.api.get(f"{path}/a.txt")

    assert (staged.status_code, staged.json()["committed_at_ms"]) == (201, None)
    assert (before, missing.status_code) == ([], 404)
    assert missing.json()["code"] == "artifact_not_found"
    assert (listed["name"], listed["size"]) == ("a.txt", len(content))
    assert (listed["media_type"], listed["task_id"]) == ("text/plain", lease["task_id"])
    assert listed["created_at_ms"] == bench.api.clock.now_ms()
    assert got.content == content
    assert got.headers["content-type"] == "text/plain"
    assert got.headers["content-disposition"].startswith("attachment")
    assert got.headers["x-content-type-options"] == "nosniff"


async def test_a_large_artifact_lies_beside_the_database(bench: Bench, tmp_path: Path) -> None:
    run_id = await bench.start("one")
    (lease,) = await bench.worker.lease()
    await attach(bench, run_id, lease, "small", b"x" * LARGEST_IN_ROW)
    assert files(tmp_path) == []

    await attach(bench, run_id, lease, "large", LARGE)

    (file,) = files(tmp_path)
    assert file.read_bytes() == LARGE


async def test_an_attempt_that_fails_leaves_nothing(bench: Bench, tmp_path: Path) -> None:
    run_id = await bench.start("one")
    (first,) = await bench.worker.lease()
    await attach(bench, run_id, first, "lost", LARGE)
    await attach(bench, run_id, first, "both", b"old")
    await bench.worker.fail(first)
    assert files(tmp_path) == []

    (second,) = await bench.worker.lease()
    await attach(bench, run_id, second, "both", b"new")
    await bench.worker.finish(second)

    names = [one["name"] for one in await bench.items(f"/api/runs/{run_id}/artifacts")]
    assert names == ["both"]
    assert (await bench.api.get(f"/api/runs/{run_id}/artifacts/both")).content == b"new"


async def test_a_cancelled_run_leaves_nothing_staged(bench: Bench, tmp_path: Path) -> None:
    run_id = await bench.start("one")
    (lease,) = await bench.worker.lease()
    await attach(bench, run_id, lease, "a", LARGE)

    await bench.steer(run_id, "cancel")
    late = await attach(bench, run_id, lease, "b", LARGE)

    assert (late.status_code, late.json()["code"]) == (409, "stale_lease")
    assert files(tmp_path) == []
    assert await bench.items(f"/api/runs/{run_id}/artifacts") == []


async def test_the_same_name_again_replaces_what_the_attempt_had(
    bench: Bench, tmp_path: Path
) -> None:
    run_id = await bench.start("one")
    (lease,) = await bench.worker.lease()
    for content in (LARGE, LARGE + b"!", b"last"):
        await attach(bench, run_id, lease, "a", content)
    await bench.worker.finish(lease)

    (listed,) = await bench.items(f"/api/runs/{run_id}/artifacts")
    assert listed["size"] == 4
    assert files(tmp_path) == []


async def test_only_the_holder_of_the_lease_attaches(bench: Bench, tmp_path: Path) -> None:
    run_id, other = await bench.start("one"), await bench.start("one")
    lease = (await bench.worker.lease())[0]
    free = await bench.api.submit(name="free")
    (free_lease,) = await bench.worker.lease()
    unknown = {**lease, "task_id": "0000000000000001"}
    assert free["id"] == free_lease["task_id"]

    answers = {
        "stale_lease": await attach(bench, run_id, {**lease, "fence": 7}, "a", LARGE),
        "task_not_found": await attach(bench, run_id, unknown, "a", LARGE),
        "run_not_found": await attach(bench, "0000000000000001", lease, "a", LARGE),
        "invalid": await attach(bench, other, lease, "a", LARGE),
    }
    free_one = await attach(bench, run_id, free_lease, "a", LARGE)
    nobody = await bench.api.client.put(f"/api/runs/{run_id}/artifacts/a", content=b"x")
    headless = await bench.api.client.put(
        f"/api/runs/{run_id}/artifacts/a?task_id={lease['task_id']}", content=b"x"
    )

    assert {code: answer.json()["code"] for code, answer in answers.items()} == {
        code: code for code in answers
    }
    assert (free_one.status_code, free_one.json()["field"]) == (400, "task_id")
    assert (nobody.status_code, nobody.json()["field"]) == (400, "task_id")
    assert (headless.status_code, headless.json()["field"]) == (400, "fence")
    assert files(tmp_path) == []


async def test_an_artifact_over_the_limit_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async with served(tmp_path, max_artifact_bytes=2 * len(LARGE)) as api:
        bench = await Bench.at(api)
        await bench.put(ONE)
        run_id = await bench.start("one")
        (lease,) = await bench.worker.lease()

        async def endless() -> Json:
            for _ in range(4):
                yield LARGE

        told = await attach(bench, run_id, lease, "a", LARGE * 3)
        untold = await attach(bench, run_id, lease, "a", endless())

        for answer in (told, untold):
            assert (answer.status_code, answer.json()["setting"]) == (413, "max_artifact_bytes")
        assert files(tmp_path) == []


async def test_names_may_hold_anything_printable(bench: Bench) -> None:
    run_id = await bench.start("one")
    (lease,) = await bench.worker.lease()

    odd = await attach(bench, run_id, lease, "%00", b"x")
    long = await attach(bench, run_id, lease, "a" * 201, b"x")
    fine = await attach(bench, run_id, lease, "dir%2F%C3%A4%20b.txt", b"x")
    await bench.worker.finish(lease)
    got = await bench.api.get(f"/api/runs/{run_id}/artifacts/dir%2F%C3%A4%20b.txt")

    assert (odd.status_code, long.status_code) == (400, 400)
    assert fine.json()["name"] == "dir/ä b.txt"
    assert got.content == b"x"
    assert got.headers["content-disposition"].endswith("UTF-8''dir%2F%C3%A4%20b.txt")


async def test_artifacts_come_in_pages_newest_first(bench: Bench) -> None:
    run_id = await bench.start("one")
    (lease,) = await bench.worker.lease()
    for number in range(3):
        await attach(bench, run_id, lease, f"a{number}", b"x")
    await bench.worker.finish(lease)
    path = f"/api/runs/{run_id}/artifacts?limit=2"

    first = (await bench.api.get(path)).json()
    second = (await bench.api.get(f"{path}&cursor={first['next_cursor']}")).json()

    assert [one["name"] for one in first["items"]] == ["a2", "a1"]
    assert ([one["name"] for one in second["items"]], second["next_cursor"]) == (["a0"], None)
    assert (await bench.api.get(f"{path}&cursor=x")).status_code == 400


async def test_artifacts_outlive_a_restart_and_orphans_do_not(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        bench = await Bench.at(api)
        await bench.put(ONE)
        run_id, staged_id = await bench.start("one"), await bench.start("one")
        lease, staged = await bench.worker.lease()
        await attach(bench, run_id, lease, "a", LARGE)
        await bench.worker.finish(lease)
        await attach(bench, staged_id, staged, "b", LARGE)
        worker = bench.worker
    (tmp_path / "rota.db.artifacts" / "orphan").write_bytes(b"left over")

    async with served(tmp_path) as api:
        bench = Bench(api, await api.register("other"))
        again = await api.get(f"/api/runs/{run_id}/artifacts/a")
        found = len(files(tmp_path))
        body = {"incarnation": worker.incarnation, "results": [
            {"task_id": staged["task_id"], "fence": staged["fence"], "ok": True}
        ]}  # fmt: skip
        await api.post(f"/api/workers/{worker.id}/results", body)
        later = await api.get(f"/api/runs/{staged_id}/artifacts/b")

    assert (again.content, later.content) == (LARGE, LARGE)
    assert found == 2


async def test_artifacts_go_with_their_run(tmp_path: Path) -> None:
    async with served(tmp_path, history_keep_ms=10_000) as api:
        bench = await Bench.at(api)
        await bench.put(ONE)
        run_id = await bench.start("one")
        (lease,) = await bench.worker.lease()
        await attach(bench, run_id, lease, "a", LARGE)
        await bench.worker.finish(lease)
        assert len(files(tmp_path)) == 1

        await api.turn(10_001)

        assert files(tmp_path) == []


async def test_a_store_in_memory_keeps_them_in_rows(tmp_path: Path) -> None:
    async with called(tmp_path, store="sqlite://") as api:
        api.client.base_url = httpx.URL("http://localhost")
        bench = await Bench.at(api)
        await bench.put(ONE)
        run_id = await bench.start("one")
        (lease,) = await bench.worker.lease()
        await attach(bench, run_id, lease, "a", LARGE)
        await bench.worker.finish(lease)

        assert (await api.get(f"/api/runs/{run_id}/artifacts/a")).content == LARGE


async def test_a_worker_token_attaches_for_its_own_worker_only(closed: Api) -> None:
    admin = await token(closed, "admin")
    own, other = (
        await token(closed, "worker", worker_id="w1"),
        await token(closed, "worker", worker_id="w2"),
    )
    closed.client.headers.update(own)
    bench = await Bench.at(closed)
    closed.client.headers.update(admin)
    await bench.put(ONE)
    run_id = await bench.start("one")
    (lease,) = await bench.worker.lease()

    refused = await attach(bench, run_id, lease, "a", b"x", **other)
    taken = await attach(bench, run_id, lease, "a", b"x", **own)

    assert (refused.status_code, taken.status_code) == (403, 201)


async def test_a_token_of_another_binding_attaches_nothing(closed: Api) -> None:
    admin, unbound = await token(closed, "admin"), await token(closed, "worker")
    closed.client.headers.update(await token(closed, "worker", queues=("default",)))
    bench = await Bench.at(closed)
    closed.client.headers.update(admin)
    await bench.put(ONE)
    run_id = await bench.start("one")
    (lease,) = await bench.worker.lease()

    refused = await attach(bench, run_id, lease, "a", b"x", **unbound)

    assert refused.status_code == 403
