"""What is stored is counted by owner, and one owner leaves some room to the others."""

import pytest

from rota.core.access import LOCAL, Caller, Scope
from rota.core.kv import KvEntry, check_usage, note_gone, note_put
from rota.core.quotas import (
    LOCAL_OWNER,
    NOTHING,
    Amount,
    Bound,
    Usage,
    ValuePolicy,
    owner_of_stored,
)
from rota.errors import TooMany

POLICY = ValuePolicy(max_values=16, max_values_bytes=1_600)  # of which one owner has 14 and 1,400


def value(size: int = 1, owner: str | None = "a") -> KvEntry:
    return KvEntry(key="k", value=b"1" * size, version=1, updated_at_ms=0, owner=owner)


def usage(**owners: tuple[int, int]) -> Usage:
    """The usage by these owners; `nobody` stands for rows without an owner."""
    sums = {None if name == "nobody" else name: Amount(*one) for name, one in owners.items()}
    return Usage.counted(sums, now_ms=7)


def refusal(
    now: Usage, before: KvEntry | None, after: KvEntry, *, by_operator: bool = False
) -> tuple[str, int] | None:
    try:
        check_usage(now, before, after, POLICY, by_operator=by_operator)
    except TooMany as error:
        return error.facts["setting"], error.facts["limit"]
    return None


def test_the_owner_of_what_is_stored_is_the_token() -> None:
    assert owner_of_stored(Caller(name="x", scopes=(Scope.SUBMIT,), token_id="t1")) == "t1"
    assert owner_of_stored(LOCAL) == LOCAL_OWNER


def test_rows_without_an_owner_count_for_the_total_alone() -> None:
    now = usage(nobody=(3, 30), a=(2, 20))

    assert (now.total, now.of("a"), now.of(None)) == (Amount(5, 50), Amount(2, 20), NOTHING)
    assert refusal(usage(nobody=(14, 1_400)), None, value()) is None
    assert refusal(usage(nobody=(15, 1)), None, value()) == ("max_values", 15)


def test_one_owner_has_its_share_and_the_others_have_the_rest() -> None:
    now = usage(a=(14, 14))

    assert refusal(now, None, value(owner="a")) == ("max_values", 14)
    assert refusal(now, None, value(owner="a"), by_operator=True) == ("max_values", 14)
    assert refusal(now, None, value(owner="b")) is None
    assert refusal(usage(a=(1, 1_400)), None, value(owner="a")) == ("max_values_bytes", 1_400)
    assert refusal(usage(a=(1, 1_400)), None, value(100, owner="b")) is None


def test_the_last_part_of_a_bound_is_for_operators() -> None:
    now = usage(a=(14, 14), b=(1, 1))

    assert refusal(now, None, value(owner="c")) == ("max_values", 15)
    assert refusal(now, None, value(owner="c"), by_operator=True) is None


def test_what_takes_no_more_than_before_always_fits() -> None:
    now = usage(a=(20, 2_000))  # the bound was larger once

    assert refusal(now, value(100), value(100)) is None
    assert refusal(now, value(100), value(101)) == ("max_values_bytes", 1_500)


def test_a_value_of_another_owner_is_more_to_the_one_that_replaces_it() -> None:
    now = usage(a=(1, 100), b=(14, 14))

    assert refusal(now, value(100, owner="a"), value(1, owner="b")) == ("max_values", 14)
    assert refusal(now, value(1, owner="b"), value(1, owner="a")) is None


def test_replacing_a_value_moves_it_to_its_new_owner() -> None:
    now = usage(nobody=(1, 5), a=(1, 10))

    note_put(now, value(10, owner="a"), value(30, owner="b"))
    note_put(now, value(5, owner=None), value(6, owner="b"))
    note_put(now, None, value(1, owner=None))

    assert (now.total, now.owners) == (Amount(3, 37), {"b": Amount(2, 36)})


def test_an_owner_of_nothing_is_forgotten() -> None:
    now = usage(a=(2, 30))

    note_gone(now, "a", 10)
    assert now.owners == {"a": Amount(1, 20)}
    note_gone(now, "a", 20)
    assert (now.total, now.owners) == (NOTHING, {})


def test_a_copy_does_not_change_what_it_was_made_of() -> None:
    now = usage(a=(1, 10))

    now.copy().add("a", 1, 10)

    assert (now.total, now.of("a"), now.copy().read_at_ms) == (Amount(1, 10), Amount(1, 10), 7)


@pytest.mark.parametrize(("whole", "share"), [(16, 14), (8, 7), (7, 7), (0, 0)])
def test_a_bound_that_is_too_small_is_not_split(whole: int, share: int) -> None:
    assert Bound("max_values", whole).share == share
