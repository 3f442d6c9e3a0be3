"""Scopes and paths: how an operation of a function is recognised when the function is replayed.

The path of an operation is `scope/name#n`: n counts the name in its scope. A key replaces n:
`scope/name[key]`. The current scope is a context variable, so each branch of a `gather` counts for
itself, and the order in which branches run does not matter. Two asyncio tasks that use one name in
one scope would depend on their order. The second one gets `AmbiguousStep`.
"""

from contextvars import ContextVar
from typing import Protocol

from rota.core import limits
from rota.errors import Invalid
from rota.sdk.functions.errors import AmbiguousStep

UNDO_SCOPE = "undo"  # of the steps that undo others
FORBIDDEN = frozenset("/#[]")  # in names: they are part of a path
MAX_PATH_LENGTH = 1_000


class ScopeUser(Protocol):
    """What runs operations one after the other: an asyncio task, or a thread."""

    @property
    def is_live(self) -> bool: ...


class CallScope:
    """Counts the names that are used in one scope of a function."""

    __slots__ = ("_counts", "_users", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._counts: dict[str, int] = {}
        self._users: dict[str, tuple[ScopeUser, int]] = {}  # the last user of a name, and its line

    def path_of(self, name: str, key: str | None, caller: ScopeUser, line: int) -> str:
        """The path of the next operation of this name."""
        if key is not None:
            return self._checked(f"{name}[{key.replace('%', '%25').replace('/', '%2F')}]")
        user = self._users.get(name)
        if user is not None and user[0] is not caller and user[0].is_live:
            where = f"in the scope {self.path!r}" if self.path else "in the function"
            raise AmbiguousStep(
                f"two asyncio tasks use {name!r} {where}, on line {user[1]} and on line {line}; "
                "their order may change: run them with ctx.gather(…), or give each a key with "
                "ctx.using(key=…)",
                name=name,
                lines=[user[1], line],
            )
        self._users[name] = caller, line
        number = self._counts.get(name, 0) + 1
        self._counts[name] = number
        return self._checked(f"{name}#{number}")

    def _checked(self, name: str) -> str:
        path = f"{self.path}/{name}" if self.path else name
        if len(path) > MAX_PATH_LENGTH:
            raise Invalid(f"a path has at most {MAX_PATH_LENGTH} characters: {path[:100]}…")
        return path


class Scopes:
    """The scopes of one run of a function, by their paths."""

    def __init__(self) -> None:
        self._scopes: dict[str, CallScope] = {"": CallScope("")}

    def at(self, path: str) -> CallScope:
        found = self._scopes.get(path)
        if found is None:
            found = self._scopes[path] = CallScope(path)
        return found


SCOPE: ContextVar[CallScope] = ContextVar("rota.functions.scope")


def scope_of(path: str) -> str:
    """The scope that a path is in; the root is empty."""
    return path.rpartition("/")[0]


def is_undo(path: str) -> bool:
    """Whether a path is that of a step which undoes another, or of one of its retries."""
    return path.startswith(f"{UNDO_SCOPE}/")


def checked_name(name: str) -> str:
    """The name of an operation or scope, if it can be part of a path."""
    if not name or len(name) > limits.MAX_NAME_LENGTH or FORBIDDEN & set(name):
        raise Invalid(
            f"{name!r} cannot name an operation: a name has 1 to {limits.MAX_NAME_LENGTH} "
            "characters, and none of / # [ ]"
        )
    return name
