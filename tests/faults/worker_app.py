"""The app whose workers are killed: it writes down what it runs and what became of its results.

Each line of the record is a JSON array: `["ran", number, attempt, pid]` when a handler begins,
and `["outcome", task_id, outcome, result]` for each answer to a reported result.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from rota import Rota, current
from rota.messages import ResultAnswer, ResultItem
from rota.messages.streams import StreamNoted
from rota.sdk.client.client import Client
from rota.sdk.transport.http import FailoverTransport, HttpTransport
from rota.sdk.transport.transport import Response, TransportRequest
from rota.sdk.worker.streaming import manager as streaming_line
from rota.sdk.worker.streaming.stream import CoordinatorStream

WORK_S = 0.005

_record = os.open(os.environ["FAULTS_RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def write_down(*line: str | int) -> None:
    """One write at the end of the file: lines of several processes do not mix."""
    os.write(_record, msgspec.json.encode(line) + b"\n")


class Recording:
    """What a transport brings back of results is written down on its way."""

    async def asend(self, request: TransportRequest) -> Response:
        response: Response = await super().asend(request)  # type: ignore[misc]  # of the transport
        if request.path.endswith("/results") and response.status == 200:
            assert request.body is not None
            said = msgspec.json.decode(request.body)
            results = {one["task_id"]: one["result"] for one in said["results"]}
            for one in msgspec.json.decode(response.body, type=ResultAnswer).outcomes:
                write_down("outcome", one.task_id, one.outcome, results[one.task_id])
        return response


class RecordingTransport(Recording, HttpTransport):
    pass


class RecordingFailover(Recording, FailoverTransport):
    pass


def transport_to(urls: list[str]) -> RecordingTransport | RecordingFailover:
    return RecordingFailover(urls) if len(urls) > 1 else RecordingTransport(urls[0])


class RecordingStream(CoordinatorStream):
    def report(self, items: Sequence[ResultItem]) -> "asyncio.Future[StreamNoted]":
        answer = super().report(items)
        answer.add_done_callback(partial(_write_down_noted, items))
        return answer


def _write_down_noted(items: Sequence[ResultItem], answer: "asyncio.Future[StreamNoted]") -> None:
    if answer.cancelled() or answer.exception() is not None:
        return
    refused = dict(answer.result().refused)
    for item in items:
        assert item.result is not None
        outcome = refused.get(int(item.task_id, 16), "accepted")
        write_down("outcome", item.task_id, outcome, msgspec.json.decode(item.result))


setattr(streaming_line, "CoordinatorStream", RecordingStream)  # noqa: B010 - a class, for the type checker

app = Rota()
app.use(Client(transport_to(os.environ["ROTA_URL"].split(","))))


@app.task
def double(number: int) -> int:
    write_down("ran", number, current().attempt, os.getpid())
    time.sleep(WORK_S)
    return number * 2


@app.task
def hold(number: int, pipe: str) -> int:
    """The first attempt stays until the test writes to the pipe; later ones end at once."""
    attempt = current().attempt
    write_down("ran", number, attempt, os.getpid())
    if attempt == 1:
        Path(pipe).read_bytes()
    return os.getpid()
