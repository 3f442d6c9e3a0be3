"""Tasks that run in processes, which import them from here."""

import asyncio
import logging
import os
from pathlib import Path

from rota import HandlerCall, Middleware, Rota, current


class ProcessNoting(Middleware):
    """Notes the process in which the last handler was called."""

    pid = 0

    def on_execute(self, _: HandlerCall) -> None:
        self.pid = os.getpid()


noting = ProcessNoting()
app = Rota("http://127.0.0.1:1", middleware=[noting])  # tests give it another way


@app.task(run_in="process")
def headers_in_process() -> dict[str, object]:
    return {
        "headers": dict(current().headers),
        "pid": os.getpid(),
        "hooked_in": noting.pid,
    }


@app.task(run_in="process")
def process_id() -> int:
    return os.getpid()


@app.task(run_in="process")
async def doubled(number: int) -> int:
    await asyncio.sleep(0)
    return number * 2


@app.task(run_in="process", max_attempts=1)
def crash(code: int) -> None:
    os._exit(code)


@app.task(run_in="process", max_attempts=1)
def fail() -> None:
    raise LookupError("nothing here")


@app.task(run_in="process")
def attempt_told() -> dict[str, object]:
    current().progress(0.25)
    return {"attempt": current().attempt, "name": current().name}


@app.task(run_in="process", max_attempts=1)
def endless(pid_file: str) -> None:
    Path(pid_file).write_text(str(os.getpid()))
    while True:
        pass


@app.task(run_in="process")
def attach_from_process(name: str) -> str | None:
    current().attach(name, b"from a process", media_type="text/plain")
    return current().run_id


@app.task(run_in="process")
async def attach_from_async_process(name: str) -> None:
    await current().aattach(name, "from a loop in a process")


@app.task(run_in="process", max_attempts=1)
def log_and_crash() -> None:
    current().log.info("about to crash")
    os._exit(3)


@app.task(run_in="process")
async def log_from_process(count: int) -> None:
    for number in range(count):
        current().log.info("line %d", number)
    logging.getLogger("shop.mail").warning("by another logger")
