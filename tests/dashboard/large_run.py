"""A run that fans out into thousands of branches, and how it is carried through."""

from typing import Any

from tests.gateways.serving import Api, held

WORKFLOW = {
    "name": "large",
    "initial_node": "begin",
    "nodes": {
        "begin": {},
        "work": {"task": "work", "input": {"item": "branch.item"}, "retry": {"max_attempts": 1}},
        "sum": {"task": "sum", "input": {"count": "size(state.found)"}},
        "never": {"task": "never"},
    },
    "transitions": [
        {"id": "each", "from": "begin", "to": "work", "foreach": "input.items"},
        {
            "from": "work",
            "to": "sum",
            "synchronization": {
                "joins_transition": "each",
                "on_branch_failure": "continue",
                "merge": {"source": "branch.output.ok", "target": "state.found"},
            },
        },
        {"from": "sum", "to": "never", "condition": "false"},
    ],
}
STEP = 1_000


async def large_run(api: Api, items: int, *, left: int = 0) -> str:
    """Start a run of so many items and end all but the last few tasks; its id."""
    stored = await api.client.put("/api/workflows/large", json=WORKFLOW)
    assert stored.status_code in {200, 201}, stored.text
    started = await api.post(
        "/api/runs", {"workflow": "large", "input": {"items": list(range(items))}}
    )
    assert started.status_code == 201, started.text
    worker = await api.register("large", max_concurrent_tasks=STEP)
    ended = 0
    while ended < items - left:
        leases = await worker.lease(most=min(STEP, items - left - ended))
        results = [_end(lease, number) for number, lease in enumerate(leases, ended)]
        for start in range(0, len(results), 500):
            answer = await worker.report(*results[start : start + 500])
            assert answer.status_code == 200, answer.text
        ended += len(leases)
    if not left:
        (last,) = await worker.lease(most=1, wait_ms=20_000)
        await worker.finish(last, {"count": items})
    return str(started.json()["id"])


def _end(lease: Any, number: int) -> dict[str, Any]:
    if number % 1_000 == 7:
        error = {"type": "Lost", "message": f"item {number}"}
        return {**held(lease), "ok": False, "error": error}
    return {**held(lease), "ok": True, "result": {"ok": True}}
