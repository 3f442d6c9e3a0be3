"""The tasks that the benchmarks run: no-ops, some of which report that they ran."""

import time
from functools import cache

from benchmarks import witness
from rota import Rota

app = Rota()


@app.task
async def noop() -> None:
    """Do nothing, so that the figures show the cost of everything around the handler."""


@app.task
async def counted() -> None:
    _tally().count()


@app.task
async def call(submitted_ns: int) -> None:
    _caller().call(submitted_ns, time.monotonic_ns())


@cache
def _caller() -> witness.Caller:
    return witness.Caller(witness.folder())


@cache
def _tally() -> witness.Tally:
    return witness.Tally(witness.folder())
