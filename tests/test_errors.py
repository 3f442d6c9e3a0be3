import inspect
import re

import pytest

from rota import errors
from rota.errors import (
    Overloaded,
    RotaError,
    StaleIncarnation,
    StaleLease,
    TaskNotFound,
    Unavailable,
)


def every_error() -> list[type[RotaError]]:
    return [
        one
        for _, one in inspect.getmembers(errors, inspect.isclass)
        if issubclass(one, RotaError) and one.__module__ == errors.__name__
    ]


def drawn() -> dict[str, tuple[str | None, int | None]]:
    """The tree in the docstring: each error with the one above it and the status beside it."""
    assert errors.__doc__ is not None
    found: dict[str, tuple[str | None, int | None]] = {}
    above: list[str] = []
    for line in errors.__doc__.splitlines():
        match = re.match(r"^([│├└─ ]*)([A-Z]\w+)(?:\s+(\d{3})\b)?", line)
        if match is None or not (match.group(1) or match.group(2) == "RotaError"):
            continue
        depth = len(match.group(1)) // 4
        del above[depth:]
        status = int(match.group(3)) if match.group(3) else None
        found[match.group(2)] = (above[-1] if above else None, status)
        above.append(match.group(2))
    return found


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    classes = {
        one.__name__: None if one is RotaError else one.__bases__[0].__name__
        for one in every_error()
    }

    assert {name: parent for name, (parent, _) in drawn().items()} == classes


def test_the_statuses_in_the_docstring_are_those_of_the_classes() -> None:
    tree = drawn()

    for one in every_error():
        parent, status = tree[one.__name__]
        if status is None and parent is not None:
            status = tree[parent][1]
        if status is not None:
            assert one.status == status, one


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [one.code for one in every_error()]

    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[a-z][a-z_]*", code) for code in codes)


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_has_a_title_and_a_status_that_fits(kind: type[RotaError]) -> None:
    assert kind.title
    assert 400 <= kind.status <= 503


def test_an_error_keeps_its_facts() -> None:
    error = TaskNotFound("00ff")

    assert (
        error.detail
        == str(error)
        == ("task '00ff' not found; check its id, and for how long finished tasks are kept")
    )
    assert error.facts == {"task_id": "00ff"}


def test_conflicts_name_what_they_are_about() -> None:
    lease = StaleLease("00ff")
    zombie = StaleIncarnation("w1", given=1, current=2)

    assert "'00ff'" in lease.detail
    assert zombie.facts == {"worker_id": "w1", "given": 1, "current": 2}


@pytest.mark.parametrize("kind", [Overloaded, Unavailable])
def test_those_that_pass_say_when_to_come_back(kind: type[Overloaded | Unavailable]) -> None:
    assert kind("busy").retry_after_s == 1
    assert kind("busy", retry_after_s=9).facts == {"retry_after_s": 9}
