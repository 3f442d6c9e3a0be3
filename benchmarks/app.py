"""The tasks that are measured: one that does nothing, and one that says when it started."""

import time
from functools import cache

from benchmarks import witness
from rota import Rota

app = Rota()


@app.task
async def noop() -> None:
    """Nothing: what is measured is everything around it."""


@app.task
async def call(submitted_ns: int) -> None:
    _caller().call(submitted_ns, time.monotonic_ns())


@cache
def _caller() -> witness.Caller:
    return witness.Caller(witness.folder())
