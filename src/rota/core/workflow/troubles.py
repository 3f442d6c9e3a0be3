"""What goes wrong in a workflow itself, and not in what it calls: it ends the run, with the place.

Raised anywhere below the one door, and taken up there; nothing is swallowed on the way.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rota.core.workflow.expressions import ExpressionError
from rota.core.workflow.tokens import Place


class Trouble(Exception):  # noqa: N818 - the run's error is made of it
    """A rule of the definition cannot be followed."""

    def __init__(
        self,
        kind: str,
        message: str,
        place: str,
        *,
        token: int | None = None,
        stack: tuple[Place, ...] = (),
    ) -> None:
        super().__init__(f"{place}: {message}")
        self.kind = kind
        self.message = message
        self.place = place
        self.token = token  # the one that could not go on,
        self.stack = stack  # or else the scopes in which it happened

    @property
    def error(self) -> dict[str, Any]:
        return {"type": self.kind, "message": self.message, "place": self.place}


@contextmanager
def troubling(
    kind: str, place: str, *, token: int | None = None, stack: tuple[Place, ...] = ()
) -> Iterator[None]:
    """Expressions that fail in here are trouble of this kind."""
    try:
        yield
    except ExpressionError as error:
        message, where = str(error), error.place or place
        raise Trouble(kind, message, where, token=token, stack=stack) from None
