"""A problem of a definition: what is wrong, and where."""

from msgspec import Struct


class Problem(Struct, frozen=True, kw_only=True):
    path: str  # such as transitions[2].condition
    code: str
    message: str
    line: int | None = None


def problem(path: str, code: str, message: str) -> Problem:
    return Problem(path=path, code=code, message=message)
