"""The key-value store as a program uses it.

Values are JSON. Each has a version that changes with the value and is never reused, so a program
can change a value on condition that no other program has: `update` does that. A namespace is a
part of the keys, as a folder is of files.
"""

import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from rota.errors import KeyNotFound, VersionConflict
from rota.messages.kv import MemoryPut, MemoryView
from rota.sdk.client import kv_calls
from rota.sdk.client.client import Client, Events, ItemStream
from rota.sdk.client.requests import ApiCall, Exchange
from rota.sdk.encoding import encode
from rota.sdk.options.durations import Seconds, seconds

MOST_TRIES = 100  # of an update, when other programs were quicker each time
LONGEST_PAUSE_S = 0.1  # between two tries
CHANGES = ("memory-set", "memory-deleted")


class ValueEntry(Struct, frozen=True, kw_only=True):
    """A value with its key, version and times."""

    key: str
    value: Any
    version: int  # changes whenever the value does
    updated_at_ms: int
    expires_at_ms: int | None = None  # None: it never expires


class Change(Struct, frozen=True, kw_only=True):
    """A change of a value; read the key to see its current value."""

    key: str
    is_deleted: bool
    version: int | None  # the version that it got, or had
    at_ms: int
    seq: int  # of the event; a watch with `after=seq` continues after it


class Memory:
    """The values of one namespace, by key."""

    def __init__(self, client: Callable[[], Client], prefix: str = "") -> None:
        self._client = client
        self._prefix = prefix

    def __repr__(self) -> str:
        return f"<Memory {self._prefix!r}>"

    def namespace(self, name: str) -> "Memory":
        """The keys that begin with `name/`; inside, they are written without it."""
        return Memory(self._client, f"{self._prefix}{name}/")

    # --- one value ------------------------------------------------------------------------------

    def entry(self, key: str) -> ValueEntry | None:
        """A value with its version; None when the key has none."""
        return self._client().run(self._get(key))

    async def aentry(self, key: str) -> ValueEntry | None:
        """As `entry`, for async code."""
        return await self._client().arun(self._get(key))

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or `default` when it has none."""
        entry = self.entry(key)
        return default if entry is None else entry.value

    async def aget(self, key: str, default: Any = None) -> Any:
        """As `get`, for async code."""
        entry = await self.aentry(key)
        return default if entry is None else entry.value

    def put(
        self, key: str, value: Any, *, ttl_s: Seconds | None = None, if_version: int | None = None
    ) -> ValueEntry:
        """Store a value, without a limit or for `ttl_s` seconds.

        With `if_version` only if the key still has that version, or with 0 only if it has no
        value; raises `VersionConflict` otherwise. When the answer to such a call is lost
        (`Unavailable`), the value may have been stored.
        """
        return self._entry(self._client().run(self._put(key, value, ttl_s, if_version)))

    async def aput(
        self, key: str, value: Any, *, ttl_s: Seconds | None = None, if_version: int | None = None
    ) -> ValueEntry:
        """As `put`, for async code."""
        return self._entry(await self._client().arun(self._put(key, value, ttl_s, if_version)))

    def delete(self, key: str, *, if_version: int | None = None) -> bool:
        """Delete a value; returns whether there was one. `if_version` is as in `put`."""
        return self._client().run(self._delete(key, if_version))

    async def adelete(self, key: str, *, if_version: int | None = None) -> bool:
        """As `delete`, for async code."""
        return await self._client().arun(self._delete(key, if_version))

    def update(
        self,
        key: str,
        function: Callable[[Any], Any],
        *,
        default: Any = None,
        ttl_s: Seconds | None = None,
    ) -> Any:
        """Replace the value by `function(value)` and return the new one; no change is lost.

        The function gets the value, or `default` when there is none. When another program was
        quicker, the function is called again with that program's value, so it should have no side
        effects. The new value expires after `ttl_s`, or never, whatever held for the old one.
        """
        return self._client().run(self._update(key, function, default, ttl_s))

    async def aupdate(
        self,
        key: str,
        function: Callable[[Any], Any],
        *,
        default: Any = None,
        ttl_s: Seconds | None = None,
    ) -> Any:
        """As `update`, for async code; the function itself is a plain one."""
        return await self._client().arun(self._update(key, function, default, ttl_s))

    # --- many values ----------------------------------------------------------------------------

    def scan(self, prefix: str = "", *, pattern: str | None = None) -> Iterator[ValueEntry]:
        """All values whose keys begin with `prefix`, or match `pattern`, in the order of keys.

        A pattern matches whole keys: `*` matches any text, `?` one character, `[ab]` one of
        these. The values arrive page by page, each page as it is when it is requested.
        """
        return iter(self._scan(prefix, pattern))

    def ascan(self, prefix: str = "", *, pattern: str | None = None) -> AsyncIterator[ValueEntry]:
        """As `scan`, for async code."""
        return aiter(self._scan(prefix, pattern))

    def list(self, prefix: str = "", *, pattern: str | None = None) -> Sequence[ValueEntry]:
        """As `scan`, all at once."""
        return [*self.scan(prefix, pattern=pattern)]

    async def alist(self, prefix: str = "", *, pattern: str | None = None) -> Sequence[ValueEntry]:
        """As `list`, for async code."""
        return [entry async for entry in self.ascan(prefix, pattern=pattern)]

    def watch(self, prefix: str = "", *, after: int | None = None) -> "Changes":
        """The changes of values whose keys begin with `prefix`, from the first request on.

        Iterate with `for` or `async for`; it waits for the next change. `after` is the `seq` of
        the last change that the program knows, and continues after it.
        """
        return Changes(self._client(), self._prefix, prefix, after=after)

    # --- exchanges ------------------------------------------------------------------------------

    def _get(self, key: str) -> Exchange[ValueEntry | None]:
        try:
            return self._entry((yield kv_calls.get_value(self._prefix + key)))
        except KeyNotFound:
            return None

    def _delete(self, key: str, if_version: int | None) -> Exchange[bool]:
        try:
            yield kv_calls.delete_value(self._prefix + key, if_version=if_version)
        except KeyNotFound:
            return False
        return True

    def _update(
        self, key: str, function: Callable[[Any], Any], default: Any, ttl_s: Seconds | None
    ) -> Exchange[Any]:
        for number in range(1, MOST_TRIES + 1):
            before = yield from self._get(key)
            value = function(default if before is None else before.value)
            try:
                yield self._put(key, value, ttl_s, 0 if before is None else before.version)
            except VersionConflict:
                if number == MOST_TRIES:
                    raise
            else:
                return value
            # A random pause, so that the same programs do not collide again.
            yield random.uniform(0.0, min(LONGEST_PAUSE_S, 0.001 * 2**number))  # noqa: S311
        raise AssertionError("the last try returns or raises")

    def _scan(self, prefix: str, pattern: str | None) -> ItemStream[ValueEntry]:
        query: dict[str, Any] = {"prefix": self._prefix + prefix or None}
        if pattern is not None:
            query = {"pattern": _literal(self._prefix + prefix) + pattern}
        cursor: str | None = ""  # None after the last page

        def next_page() -> Exchange[Iterable[ValueEntry] | None]:
            nonlocal cursor
            if cursor is None:
                return None
            page = yield kv_calls.list_values(cursor=cursor or None, **query)
            cursor = page.next_cursor
            return map(self._entry, page.items)

        return ItemStream(self._client(), next_page)

    def _put(
        self, key: str, value: Any, ttl_s: Seconds | None, if_version: int | None
    ) -> ApiCall[MemoryView]:
        request = MemoryPut(
            value=Raw(encode(value)),
            ttl_ms=None if ttl_s is None else max(1, round(seconds(ttl_s, "ttl_s") * 1000)),
            if_version=if_version,
        )
        return kv_calls.put_value(self._prefix + key, request)

    def _entry(self, view: MemoryView) -> ValueEntry:
        return ValueEntry(
            key=view.key.removeprefix(self._prefix),
            value=msgspec.json.decode(view.value),
            version=view.version,
            updated_at_ms=view.updated_at_ms,
            expires_at_ms=view.expires_at_ms,
        )


class Changes(ItemStream[Change]):
    """The changes of the values of a namespace, in order."""

    def __init__(self, client: Client, namespace: str, prefix: str, *, after: int | None) -> None:
        super().__init__(client, self._next_page)
        self._namespace = namespace
        self._events = Events(client, after=after, types=CHANGES, prefix=namespace + prefix or None)

    def _next_page(self) -> Exchange[Iterable[Change]]:
        return map(self._change, (yield from self._events.next_page()))

    def _change(self, event: Any) -> Change:
        return Change(
            key=event.subject.removeprefix(self._namespace),
            is_deleted=event.type == "memory-deleted",
            version=event.data.get("version"),
            at_ms=event.at_ms,
            seq=event.seq,
        )


def _literal(text: str) -> str:
    """A pattern that matches exactly this text."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in text)
