"""The client: sends a call through a transport, reads the answer, raises the refusal.

The client repeats a request a few times if the coordinator has not received it, or if it is safe
when it arrives twice. A missing answer to any other request leaves its outcome unknown: the client
raises `Unavailable`, and the caller decides. Where there are several coordinators to ask, the
client gives submissions an idempotency key, so that it can repeat them elsewhere.
"""

import os
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, Generic, Self, TypeVar, cast

import msgspec

from rota.addresses import without_password
from rota.errors import Invalid, Unavailable
from rota.messages import EventPage, EventView
from rota.sdk.client.calls import list_events
from rota.sdk.client.problems import error_of
from rota.sdk.client.requests import ApiCall, Exchange, Wait, retry_after_s
from rota.sdk.timing import jittered
from rota.sdk.transport.transport import NotSent, Response, Transport, adrive, drive
from rota.tls import Verify

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:7070"  # where `rota up` and `rota dev` serve
DEFAULT_EMBEDDED_URL = "sqlite:///rota.db"
NONE_HERE = (
    "start one with `rota up` or `rota dev MODULE:APP`, name another one by ROTA_URL, or have one "
    "inside the program with Rota(embedded=True)"
)
REPEAT_AFTER_S = (0.05, 0.2, 0.8)
MOST_RETRY_AFTER_S = 5.0  # before a repeated request, however long the coordinator asks for
EVENTS_PER_PAGE = 1_000


class Client:
    """Carries out calls and exchanges, from any thread (`run`) and any event loop (`arun`)."""

    def __init__(
        self, transport: Transport, *, repeat_after_s: tuple[float, ...] = REPEAT_AFTER_S
    ) -> None:
        self.transport = transport
        self._repeat_after_s = repeat_after_s

    @classmethod
    def connect(
        cls, url: str | None = None, token: str | None = None, *, verify: Verify = True
    ) -> Self:
        """A client for `url`, or for `ROTA_URL`, or else for the coordinator of this machine."""
        return cls(open_transport(url, token, verify=verify))

    def without_repeats(self) -> "Client":
        """A client on the same transport for a caller that retries by itself."""
        return Client(self.transport, repeat_after_s=())

    def run(self, call: ApiCall[T] | Exchange[T]) -> T:
        if isinstance(call, ApiCall):
            return drive(self._send(call), self.transport.send)
        return drive(call, self.run)

    async def arun(self, call: ApiCall[T] | Exchange[T]) -> T:
        if isinstance(call, ApiCall):
            return await adrive(self._send(call), self.transport.asend)
        return await adrive(call, self.arun)

    def events(
        self,
        *,
        after: int | None = None,
        types: Sequence[str] = (),
        subject: str | None = None,
        prefix: str | None = None,
    ) -> "Events":
        """The events after a sequence number, for `for` or `async for`, without an end.

        Without `after` they begin with the first event after the first request. A type may end
        with a star: `task-*`.
        """
        return Events(self, after=after, types=types, subject=subject, prefix=prefix)

    def close(self) -> None:
        self.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, call: ApiCall[T]) -> Generator[ApiCall[T] | float, Response, T]:
        has_several = getattr(self.transport, "has_several", False)
        if has_several and call.made_repeatable is not None:
            call = call.made_repeatable()
        for wait_s in self._repeat_after_s:
            try:
                return self._read(call, (yield call))
            except Unavailable as error:
                if not call.is_repeatable and not isinstance(error, NotSent):
                    raise
                least_s = 0.0 if has_several else min(retry_after_s(error), MOST_RETRY_AFTER_S)
            yield max(jittered(wait_s), least_s)
        return self._read(call, (yield call))

    def _read(self, call: ApiCall[T], response: Response) -> T:
        if not 200 <= response.status < 300 and response.status not in call.answers:
            raise error_of(response, self.transport.address)
        try:
            return call.decoder.decode(response.body or call.empty)
        except msgspec.MsgspecError as error:
            raise Unavailable(
                f"the answer of {self.transport.address} to {call.method} {call.path} "
                f"cannot be read: {error}"
            ) from error


class ItemStream(Generic[T]):
    """Items that arrive page by page, for `for` and `async for`.

    `next_page` makes the exchange for one page; it returns None after the last one.
    """

    def __init__(
        self, client: Client, next_page: Callable[[], Exchange[Iterable[T] | None]]
    ) -> None:
        self._client = client
        self._next_page = next_page

    def __iter__(self) -> Iterator[T]:
        while (page := self._client.run(self._next_page())) is not None:
            yield from page

    async def __aiter__(self) -> AsyncIterator[T]:
        while (page := await self._client.arun(self._next_page())) is not None:
            for item in page:
                yield item


class Events(ItemStream[EventView]):
    """The events after a sequence number, in order and complete, future ones included.

    It continues where it was when the coordinator comes back. A program that stores the `seq` of
    the last event it has processed can continue there later.
    """

    def __init__(
        self,
        client: Client,
        *,
        after: int | None = None,
        types: Sequence[str] = (),
        subject: str | None = None,
        prefix: str | None = None,
    ) -> None:
        super().__init__(client, self.next_page)
        self.after = after  # a new subscription that starts here misses nothing
        self._filter: dict[str, Any] = {"types": types, "subject": subject, "prefix": prefix}

    def next_page(self) -> Exchange[Iterable[EventView]]:
        wait = Wait("the log", None)
        while True:
            if self.after is None:
                call = list_events(last=1)  # has the number that the log ends with
            else:
                call = list_events(
                    after=self.after, limit=EVENTS_PER_PAGE, wait_ms=wait.call_ms(), **self._filter
                )
            try:
                page: EventPage = yield call
            except Unavailable as error:
                yield wait.pause_s(error)
            else:
                return self._take(page)

    def _take(self, page: EventPage) -> Iterator[EventView]:
        if self.after is not None:
            for event in page.items:
                self.after = event.seq
                yield event
        self.after = page.next_after


def is_embedded(url: str | None) -> bool:
    """Whether a URL names a coordinator on SQLite inside the program."""
    return _url_of(url).startswith("sqlite:")


def embedded_url() -> str:
    """The address of an app that embeds its coordinator, unless `ROTA_URL` names one."""
    return os.environ.get("ROTA_URL") or DEFAULT_EMBEDDED_URL


def open_transport(
    url: str | None = None, token: str | None = None, *, verify: Verify = True
) -> Transport:
    """The transport for a URL; without one for `ROTA_URL`, or else for the local coordinator.

    Several addresses with commas between them are coordinators on one store. `verify` is how the
    certificates of those with https:// are checked, as in `rota.tls.client_context`.
    """
    is_given = bool(url or os.environ.get("ROTA_URL"))
    url = _url_of(url)
    token = token or os.environ.get("ROTA_TOKEN") or None
    scheme = url.partition(":")[0]
    if scheme in {"http", "https"}:
        from rota.sdk.transport.http import FailoverTransport, HttpTransport  # noqa: PLC0415 - embedded programs need no sockets

        urls = [one.strip() for one in url.split(",") if one.strip()]
        if len(urls) > 1:
            return FailoverTransport(urls, token, verify=verify)
        hint = "" if is_given else NONE_HERE
        return HttpTransport(urls[0], token, verify=verify, hint=hint)
    if scheme == "sqlite":
        # By name, not by import: a worker process that speaks HTTP never loads the store.
        connect = cast("Callable[[str], Transport]", import_module("rota.embedded").connect)
        return connect(url)
    raise Invalid(
        "a coordinator's URL starts with http://, https:// or sqlite:, "
        f"not {without_password(url)!r}"
    )


def _url_of(url: str | None) -> str:
    return url or os.environ.get("ROTA_URL") or DEFAULT_URL
