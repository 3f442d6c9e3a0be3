"""Errors of the workflow itself, as opposed to its tasks. Each ends the run and names its place.

The rules raise them, and the reducer of the run takes them up.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rota.core.workflow.definition.expressions import ExpressionError
from rota.core.workflow.runtime.tokens import Place


class RunError(Exception):
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
        self.token = token  # the one that could not continue; None: see `stack`
        self.stack = stack  # the scopes in which it happened

    @property
    def error(self) -> dict[str, Any]:
        return {"type": self.kind, "message": self.message, "place": self.place}


@contextmanager
def failing_as(
    kind: str, place: str, *, token: int | None = None, stack: tuple[Place, ...] = ()
) -> Iterator[None]:
    """Raise expressions that fail in this block as errors of this kind, or of their own code."""
    try:
        yield
    except ExpressionError as error:
        message, where = str(error), error.place or place
        raise RunError(error.code or kind, message, where, token=token, stack=stack) from None
