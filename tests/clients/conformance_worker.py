"""The Python worker that is held against the transcript of the worker protocol.

`clients/typescript/test/programs/conformance_worker.ts` is the same worker in TypeScript.
"""

import asyncio
import os
import urllib.request

from rota import Discard, Retry, Rota, Snooze, current
from rota.sdk.worker.worker import Worker

HOUR_MS = 3_600_000

app = Rota()


@app.task(name="echo")
async def echo(text: str) -> dict[str, str]:
    return {"text": text}


@app.task(name="gated")
def gated(gate: str) -> None:
    """Report progress, and wait until the task `gate` has ended."""
    current().progress(0.5)
    url = f"{os.environ['GATE_URL']}/api/tasks/{gate}?wait_ms=30000"
    with urllib.request.urlopen(url, timeout=60) as answer:
        answer.read()


@app.task(name="endless")
async def endless() -> None:
    await asyncio.Event().wait()


@app.task(name="nap")
async def nap() -> None:
    raise Snooze(HOUR_MS)


@app.task(name="again")
async def again() -> None:
    raise Retry("busy", in_ms=HOUR_MS)


@app.task(name="pointless")
async def pointless() -> None:
    raise Discard("no such order")


if __name__ == "__main__":
    Worker(
        app,
        concurrency=1,
        worker_id="conformance",
        queues=["conformance"],
        heartbeat_interval_ms=60_000,
        transport="websocket",
    ).run()
