"""What do a worker and its handler processes say to each other? JSON, each message with its length.

Code never travels: a process is told the module and the name of its handler and imports them.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from rota.messages import LeaseView, ResultItem, Value
from rota.sdk.transport import Request

LENGTH_BYTES = 4


class Home(Struct, frozen=True, kw_only=True):
    """Where a handler is defined."""

    module: str
    name: str  # as it stands in the module; dots lead into classes
    main_file: str | None = None  # to be run for what was `__main__` in the worker


class Assignment(Struct, frozen=True, kw_only=True, tag=True):
    """Worker to process: run this."""

    home: Home
    lease: LeaseView
    path: list[str]  # where the worker imports from


class Progressed(Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Process to worker: so far."""

    progress: Value = None
    partial: Value = None


class Ended(Struct, frozen=True, kw_only=True, tag=True):
    """Process to worker: done, give me the next."""

    item: ResultItem


class Asked(Request, frozen=True, kw_only=True, tag=True):
    """Process to worker: carry this request to the coordinator."""

    number: int  # the answer has the same


class Answered(Struct, frozen=True, kw_only=True, tag=True):
    """Worker to process: what the coordinator answered, or why it did not."""

    number: int
    status: int = 0
    body: bytes = b""
    headers: dict[str, str] = {}
    problem: str | None = None


News = Progressed | Ended | Asked
Orders = Assignment | Answered

_encoder = msgspec.json.Encoder()
orders_decoder: msgspec.json.Decoder[Orders] = msgspec.json.Decoder(Orders)
news_decoder: msgspec.json.Decoder[News] = msgspec.json.Decoder(News)


def framed(message: Orders | News) -> bytes:
    content = _encoder.encode(message)
    return len(content).to_bytes(LENGTH_BYTES) + content


def home_of(function: Any) -> Home:
    """Where another process finds this function."""
    module, name = function.__module__, function.__qualname__
    if module != "__main__":
        return Home(module=module, name=name)
    main = sys.modules["__main__"]
    if main.__spec__ is not None:  # run as `python -m`
        return Home(module=main.__spec__.name, name=name)
    file = getattr(main, "__file__", None)
    return Home(module=module, name=name, main_file=file and str(Path(file).resolve()))
