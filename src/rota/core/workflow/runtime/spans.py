"""The spans that tokens follow, from which the task after a join gets its links.

A token follows the span of the last task before it in its branch. A token that a join makes follows
those of all branches that arrived, and so do the tokens after it, until one of them has a task.
Runs whose workers report no spans keep nothing here.
"""

from collections.abc import Iterable

from msgspec import UNSET, Struct, UnsetType

from rota.core import limits


class FollowedSpans(Struct, frozen=True, gc=False):
    traceparents: tuple[str, ...]
    is_joined: bool = False  # the next task links to them


class TokenSpans(Struct):
    followed: dict[int, FollowedSpans] = {}  # by token
    last: str | UnsetType = UNSET  # of the task that has ended last

    def note_end(self, token: int, traceparent: str | UnsetType) -> None:
        """Note that the task, or the sub-workflow, of a token has ended."""
        self.followed.pop(token, None)
        if not isinstance(traceparent, UnsetType):
            self.last = traceparent
            self.followed[token] = FollowedSpans((traceparent,))

    def follow(self, token: int, parent: int | None) -> None:
        """Let a token follow what its parent follows, if that has not ended yet."""
        found = None if parent is None else self.followed.get(parent)
        if found is not None:
            self.followed[token] = found

    def follow_joined(self, token: int, traceparents: tuple[str, ...]) -> None:
        """Let a token follow the spans that a join has brought together."""
        if traceparents:
            self.followed[token] = FollowedSpans(traceparents, is_joined=True)

    def links(self, token: int) -> tuple[str, ...]:
        """What the task of a token links to."""
        found = self.followed.get(token)
        return found.traceparents if found is not None and found.is_joined else ()

    def of_all(self, tokens: Iterable[int]) -> tuple[str, ...]:
        """What these tokens follow: the first ones, as many as a task may have links."""
        found: dict[str, None] = {}
        for token in tokens:
            followed = self.followed.get(token)
            if followed is not None:
                found |= dict.fromkeys(followed.traceparents)
            if len(found) >= limits.MAX_TRACE_LINKS:
                break
        return tuple(found)[: limits.MAX_TRACE_LINKS]

    def forget(self, token: int) -> None:
        self.followed.pop(token, None)
