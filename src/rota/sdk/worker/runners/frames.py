"""Messages between a worker and its handler processes: JSON with a length prefix.

Code is never sent: a process gets the module and the name of its handler and imports them.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from rota.core.tasks.logs import LogLine
from rota.messages import LeaseView, ResultItem, Value
from rota.sdk.transport.transport import TransportRequest

LENGTH_BYTES = 4


class HandlerLocation(Struct, frozen=True, kw_only=True):
    """Where a handler is defined."""

    module: str
    name: str  # its qualified name in the module
    main_file: str | None = None  # the file that was `__main__` in the worker


class AttemptAssignment(Struct, frozen=True, kw_only=True, tag="Assignment"):
    """Worker to process: run this attempt."""

    location: HandlerLocation
    lease: LeaseView
    path: list[str]  # the worker's `sys.path`
    log_level: int = 0  # the level of `logging` from which on lines are kept
    captured: list[str] = []  # loggers whose records are kept as well


class Progressed(Struct, frozen=True, kw_only=True, tag="Progressed", omit_defaults=True):
    """Process to worker: the progress of the attempt."""

    progress: Value = None
    partial: Value = None


class Logged(Struct, frozen=True, kw_only=True, tag="Logged"):
    """Process to worker: the attempt has logged a line."""

    line: LogLine


class Ended(Struct, frozen=True, kw_only=True, tag="Ended"):
    """Process to worker: the attempt has ended; the process is ready for the next."""

    item: ResultItem
    left_out: int = 0  # log lines that did not fit


class Asked(TransportRequest, frozen=True, kw_only=True, tag="Asked"):
    """Process to worker: send this request to the coordinator."""

    number: int  # of the request; its answer has the same


class AttemptAnswered(Struct, frozen=True, kw_only=True, tag="Answered"):
    """Worker to process: the coordinator's answer, or why there is none."""

    number: int
    status: int = 0
    body: bytes = b""
    headers: dict[str, str] = {}
    problem: str | None = None


ChildMessage = Progressed | Logged | Ended | Asked
WorkerMessage = AttemptAssignment | AttemptAnswered

_encoder = msgspec.json.Encoder()
worker_message_decoder: msgspec.json.Decoder[WorkerMessage] = msgspec.json.Decoder(WorkerMessage)
child_message_decoder: msgspec.json.Decoder[ChildMessage] = msgspec.json.Decoder(ChildMessage)


def framed(message: WorkerMessage | ChildMessage) -> bytes:
    content = _encoder.encode(message)
    return len(content).to_bytes(LENGTH_BYTES) + content


def location_of(function: Any) -> HandlerLocation:
    """Where another process can import this function from."""
    module, name = function.__module__, function.__qualname__
    if module != "__main__":
        return HandlerLocation(module=module, name=name)
    main = sys.modules["__main__"]
    if main.__spec__ is not None:  # run as `python -m`
        return HandlerLocation(module=main.__spec__.name, name=name)
    file = getattr(main, "__file__", None)
    return HandlerLocation(module=module, name=name, main_file=file and str(Path(file).resolve()))
