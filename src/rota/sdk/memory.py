"""Where does a program keep what others should find? Under keys, with the coordinator.

Values are JSON. Each has a version that changes with it and is never used again, so that a change
can be made on condition that nobody else made one since: `update` does that. A namespace is a part
of the keys, as a folder is of files.
"""

import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from rota.errors import KeyNotFound, VersionConflict
from rota.messages.keeping import MemoryPut, MemoryView
from rota.sdk import keeping_calls
from rota.sdk.client import Client
from rota.sdk.conversations import Conversation, aconverse, converse
from rota.sdk.encoding import encode
from rota.sdk.events import Events
from rota.sdk.requests import Call

MOST_TRIES = 100  # of an update; others were quicker each time
LONGEST_PAUSE_S = 0.1  # before another of them
CHANGES = ("memory-set", "memory-deleted")


class Entry(Struct, frozen=True, kw_only=True):
    """A value, and what goes with it."""

    key: str
    value: Any
    version: int  # is another one as soon as the value is
    updated_at_ms: int
    expires_at_ms: int | None = None  # None: it is kept for ever


class Change(Struct, frozen=True, kw_only=True):
    """Something has happened to a value; look it up to see what it is now."""

    key: str
    is_deleted: bool
    version: int | None  # that it got, or had
    at_ms: int
    seq: int  # of the event; a watch that begins after it goes on from there


class Memory:
    """Values by key, as far as they belong to one namespace."""

    def __init__(self, client: Callable[[], Client], prefix: str = "") -> None:
        self._client = client
        self._prefix = prefix

    def __repr__(self) -> str:
        return f"<Memory {self._prefix!r}>"

    def namespace(self, name: str) -> "Memory":
        """The keys that begin with `name/`; inside, they go without it."""
        return Memory(self._client, f"{self._prefix}{name}/")

    # --- one value ------------------------------------------------------------------------------

    def entry(self, key: str) -> Entry | None:
        """A value with its version; None when there is none."""
        try:
            return self._entry(self._client().run(keeping_calls.get_value(self._prefix + key)))
        except KeyNotFound:
            return None

    async def aentry(self, key: str) -> Entry | None:
        """As `entry`, for async code."""
        call = keeping_calls.get_value(self._prefix + key)
        try:
            return self._entry(await self._client().arun(call))
        except KeyNotFound:
            return None

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or `default` when there is none."""
        entry = self.entry(key)
        return default if entry is None else entry.value

    async def aget(self, key: str, default: Any = None) -> Any:
        """As `get`, for async code."""
        entry = await self.aentry(key)
        return default if entry is None else entry.value

    def put(
        self, key: str, value: Any, *, ttl_s: float | None = None, if_version: int | None = None
    ) -> Entry:
        """Keep a value: for ever, or for `ttl_s` seconds.

        With `if_version` only if the key has that version still, or with 0 only if it has no value;
        raises `VersionConflict` otherwise. When the answer to such a call is lost (`Unavailable`),
        the value may have been kept.
        """
        return self._entry(self._client().run(self._put(key, value, ttl_s, if_version)))

    async def aput(
        self, key: str, value: Any, *, ttl_s: float | None = None, if_version: int | None = None
    ) -> Entry:
        """As `put`, for async code."""
        return self._entry(await self._client().arun(self._put(key, value, ttl_s, if_version)))

    def delete(self, key: str, *, if_version: int | None = None) -> bool:
        """Forget a value; whether there was one. `if_version` is as in `put`."""
        call = keeping_calls.delete_value(self._prefix + key, if_version=if_version)
        try:
            self._client().run(call)
        except KeyNotFound:
            return False
        return True

    async def adelete(self, key: str, *, if_version: int | None = None) -> bool:
        """As `delete`, for async code."""
        call = keeping_calls.delete_value(self._prefix + key, if_version=if_version)
        try:
            await self._client().arun(call)
        except KeyNotFound:
            return False
        return True

    def update(
        self,
        key: str,
        function: Callable[[Any], Any],
        *,
        default: Any = None,
        ttl_s: float | None = None,
    ) -> Any:
        """Put what `function` makes of the value, and give that back; nobody's change is lost.

        The function gets the value, or `default` when there is none. When somebody else was
        quicker it is called again with what that one put, so it should do nothing but compute.
        The new value is kept for ever or for `ttl_s`, however long the old one was to be kept.
        """
        return converse(self._updating(key, function, default, ttl_s), self._client())

    async def aupdate(
        self,
        key: str,
        function: Callable[[Any], Any],
        *,
        default: Any = None,
        ttl_s: float | None = None,
    ) -> Any:
        """As `update`, for async code; the function itself is a plain one."""
        return await aconverse(self._updating(key, function, default, ttl_s), self._client())

    def _updating(
        self, key: str, function: Callable[[Any], Any], default: Any, ttl_s: float | None
    ) -> Conversation[Any]:
        for number in range(1, MOST_TRIES + 1):
            try:
                before = self._entry((yield keeping_calls.get_value(self._prefix + key)))
            except KeyNotFound:
                before = None
            value = function(default if before is None else before.value)
            try:
                yield self._put(key, value, ttl_s, 0 if before is None else before.version)
            except VersionConflict:
                if number == MOST_TRIES:
                    raise
            else:
                return value
            # Whoever was in each other's way should not be so again.
            yield random.uniform(0.0, min(LONGEST_PAUSE_S, 0.001 * 2**number))  # noqa: S311
        raise AssertionError("the last try returns or raises")

    # --- many values ----------------------------------------------------------------------------

    def scan(self, prefix: str = "", *, pattern: str | None = None) -> Iterator[Entry]:
        """All values whose keys begin with `prefix`, or match `pattern`, in the order of keys.

        A pattern is held against whole keys: `*` stands for any text, `?` for one character, `[ab]`
        for one of these. They come page by page, as they are when their page is asked for.
        """
        cursor: str | None = None
        while True:
            page = self._client().run(self._page(prefix, pattern, cursor))
            yield from map(self._entry, page.items)
            cursor = page.next_cursor
            if cursor is None:
                return

    async def ascan(self, prefix: str = "", *, pattern: str | None = None) -> AsyncIterator[Entry]:
        """As `scan`, for async code."""
        cursor: str | None = None
        while True:
            page = await self._client().arun(self._page(prefix, pattern, cursor))
            for view in page.items:
                yield self._entry(view)
            cursor = page.next_cursor
            if cursor is None:
                return

    def list(self, prefix: str = "", *, pattern: str | None = None) -> Sequence[Entry]:
        """As `scan`, all at once."""
        return [*self.scan(prefix, pattern=pattern)]

    async def alist(self, prefix: str = "", *, pattern: str | None = None) -> Sequence[Entry]:
        """As `list`, for async code."""
        return [entry async for entry in self.ascan(prefix, pattern=pattern)]

    def watch(self, prefix: str = "", *, after: int | None = None) -> "Changes":
        """What happens to values whose keys begin so, from the first look on.

        Iterate over it with `for` or `async for`; it waits for what comes next. `after` is the
        `seq` of the last change that is known, from which it goes on.
        """
        return Changes(self._client(), self._prefix, prefix, after=after)

    # --- the wire -------------------------------------------------------------------------------

    def _put(
        self, key: str, value: Any, ttl_s: float | None, if_version: int | None
    ) -> Call[MemoryView]:
        request = MemoryPut(
            value=Raw(encode(value)),
            ttl_ms=None if ttl_s is None else max(1, round(ttl_s * 1000)),
            if_version=if_version,
        )
        return keeping_calls.put_value(self._prefix + key, request)

    def _page(self, prefix: str, pattern: str | None, cursor: str | None) -> Call[Any]:
        if pattern is None:
            return keeping_calls.list_values(prefix=self._prefix + prefix or None, cursor=cursor)
        whole = _literal(self._prefix + prefix) + pattern
        return keeping_calls.list_values(pattern=whole, cursor=cursor)

    def _entry(self, view: MemoryView) -> Entry:
        return Entry(
            key=view.key.removeprefix(self._prefix),
            value=msgspec.json.decode(view.value),
            version=view.version,
            updated_at_ms=view.updated_at_ms,
            expires_at_ms=view.expires_at_ms,
        )


class Changes:
    """What happens to the values of a namespace, change by change."""

    def __init__(self, client: Client, namespace: str, prefix: str, *, after: int | None) -> None:
        self._namespace = namespace
        self._events = Events(client, after=after, types=CHANGES, prefix=namespace + prefix or None)

    def __iter__(self) -> Iterator[Change]:
        return map(self._change, self._events)

    async def __aiter__(self) -> AsyncIterator[Change]:
        async for event in self._events:
            yield self._change(event)

    def _change(self, event: Any) -> Change:
        return Change(
            key=event.subject.removeprefix(self._namespace),
            is_deleted=event.type == "memory-deleted",
            version=event.data.get("version"),
            at_ms=event.at_ms,
            seq=event.seq,
        )


def _literal(text: str) -> str:
    """A pattern that matches these very characters."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in text)
