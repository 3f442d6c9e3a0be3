"""Runs of functions as a worker would report them, for pages to show."""

from typing import Any

from tests.gateways.serving import Api, Json
from tests.gateways.working import Bench

SOURCE = """\
@app.workflow
async def order(ctx: Run, cart: Cart) -> Receipt:
    total = await ctx.step(price, cart)
    a, b = await ctx.gather(reserve(ctx, cart), notify(ctx, cart))
    photos = await ctx.map(resize, cart.photos, max_parallel=20)
    which, _ = await ctx.first(paid=ctx.event("paid"), late=ctx.sleep(days=3))
    ok = await ctx.approval("Ship?")
    ctx.publish("status", "shipped")
    return Receipt(total)
"""
FIRST_LINE = 40
CHANGED = SOURCE.replace("step(price, cart)", "step(quote, cart)")


async def deploy(api: Api, source: str = SOURCE, name: str = "order") -> int:
    code = {
        "fingerprint": f"{hash(source):x}".zfill(16),
        "source": source,
        "module": "shop.orders",
        "first_line": FIRST_LINE,
    }
    answer = await api.client.put(f"/api/workflows/{name}", json={"code": code})
    assert answer.status_code in {200, 201}, answer.text
    return int(answer.json()["version"])


def step(path: str, line: int = 2, **more: Any) -> Json:
    done = {"path": path, "kind": "step", "state": "done", "result": {"of": path}}
    return {**done, "line": FIRST_LINE + line, **more}


def asked(path: str, request: Json, line: int, kind: str | None = None) -> Json:
    asking = {"path": path, "kind": kind or request["type"], "state": "pending"}
    return {**asking, "request": request, "line": FIRST_LINE + line}


def resizing(items: int) -> Json:
    call = {"type": "call", "task": "resize", "queue": "images"}
    return {"type": "map", "call": call, "payloads": list(range(items))}


PAID = {"type": "event", "name": "paid"}
SHIP = {"type": "approval", "title": "Ship?"}


async def stopped(bench: Bench, operations: list[Json], name: str = "order", **how: Any) -> str:
    """A run whose function has done this, and then stopped."""
    run_id = await bench.start(name, {"cart": 1})
    (lease,) = await bench.worker.lease()
    await bench.worker.finish(lease, {"operations": operations, **how})
    return run_id


async def waiting_function(api: Api, bench: Bench, *, photos: int = 3) -> str:
    """A run that has branched, and waits for photos, a signal and a person."""
    await deploy(api)
    operations = [
        step("price#1"),
        step("gather#1.0/reserve#1", 3),
        step("gather#1.1/notify#1", 3, attempts=2),
        asked("photos#1", resizing(photos), 4),
        asked("first#1.paid/paid#1", PAID, 5),
        asked(
            "first#1.late/sleep#1", {"type": "sleep", "due_at_ms": api.clock.now_ms() + 90_000}, 5
        ),
        asked("ship#1", SHIP, 6),
        {"path": "status#1", "kind": "publish", "state": "done"}
        | {"result": {"key": "status", "value": "packed"}},
        {"path": "log#1", "kind": "stream", "state": "done"}
        | {"result": {"stream": "log", "value": "labels are printed"}},
    ]
    return await stopped(bench, operations, waits=[["photos#1"], ["ship#1"]])


async def diverged_function(api: Api, bench: Bench) -> str:
    """A run whose log another version of the code does not follow."""
    await deploy(api)
    run_id = await stopped(bench, [step("price#1"), asked("paid#1", PAID, 5)], waits=[["paid#1"]])
    version = await deploy(api, CHANGED)
    await bench.steer(run_id, "signal", {"name": "paid", "payload": {"sum": 3}})
    (lease,) = await bench.worker.lease()
    divergence = {
        "message": "the log has step price#1, and the function asked for step quote#1",
        "path": "quote#1",
        "recorded": ["step price#1"],
        "attempted": "step quote#1",
        "recorded_line": FIRST_LINE + 2,
        "attempted_line": FIRST_LINE + 2,
        "version": version,
    }
    stop = {"after": 2, "divergence": divergence, "version": version}
    await bench.worker.finish(lease, stop)
    assert (await bench.run(run_id))["state"] == "paused"
    return run_id
