"""An app with a task of every kind, for `rota worker examples.app:app` and `make up` to play with.

quick     answers at once
slow      takes its time and reports how far it is
flaky     fails every now and then, and is tried again
primes    computes in a process of its own
"""

import asyncio
import random

from rota import Rota, current

app = Rota()

FAILS_ONE_IN = 3


@app.task
async def quick(name: str = "world") -> str:
    return f"Hello, {name}!"


@app.task(timeout_ms=60_000)
async def slow(steps: int = 10, step_ms: int = 500) -> str:
    context = current()
    for step in range(steps):
        await asyncio.sleep(step_ms / 1000)
        await context.aprogress((step + 1) / steps)
    return f"{steps} steps"


@app.task(max_attempts=5, backoff={"kind": "exponential", "initial_ms": 500, "max_ms": 5_000})
def flaky() -> str:
    context = current()
    if random.randrange(FAILS_ONE_IN) == 0 and not context.is_last_attempt:
        raise ConnectionError("the other side hung up")
    return f"done at attempt {context.attempt}"


@app.task(run_in="process", timeout_ms=60_000)
def primes(below: int = 200_000) -> int:
    sieve = bytearray([1]) * below
    sieve[:2] = b"\0" * min(2, below)
    for number in range(2, int(below**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, below, number)))
    return sum(sieve)
