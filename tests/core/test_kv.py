from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from rota.core.kv import ABSENT, KvEntry, PutValue, check_version, is_over, live_entry, put
from rota.errors import VersionConflict

NOW_MS = 1_000_000


def entry(**changes: Any) -> KvEntry:
    fields: dict[str, Any] = {"key": "k", "value": b"1", "version": 5, "updated_at_ms": 0}
    return KvEntry(**{**fields, **changes})


def asked(**changes: Any) -> PutValue:
    return PutValue(**{"key": "k", "value": Raw(b"2"), **changes})


# --- putting ------------------------------------------------------------------------------------


def test_a_value_is_kept_as_it_came_under_its_new_version() -> None:
    kept = put(entry(), asked(value=Raw(b' {"a" :1} ')), version=6, now_ms=NOW_MS)

    assert kept == entry(value=b' {"a" :1} ', version=6, updated_at_ms=NOW_MS)


def test_a_value_lives_for_ever_unless_it_says_how_long() -> None:
    mortal = put(None, asked(ttl_ms=10), version=6, now_ms=NOW_MS)
    immortal = put(mortal, asked(), version=7, now_ms=NOW_MS)

    assert (mortal.expires_at_ms, immortal.expires_at_ms) == (NOW_MS + 10, None)


@pytest.mark.parametrize(
    ("before", "wanted"),
    [(None, ABSENT), (entry(), 5), (entry(expires_at_ms=NOW_MS), ABSENT)],
    ids=["new", "unchanged", "past its time"],
)
def test_a_put_on_condition_goes_by_what_everybody_sees(
    before: KvEntry | None, wanted: int
) -> None:
    kept = put(before, asked(if_version=wanted), version=6, now_ms=NOW_MS)

    assert kept.version == 6


@pytest.mark.parametrize(
    ("before", "wanted", "current"),
    [
        (None, 5, ABSENT),
        (entry(), ABSENT, 5),
        (entry(), 4, 5),
        (entry(), 6, 5),
        (entry(expires_at_ms=NOW_MS), 5, ABSENT),
    ],
    ids=["gone", "there already", "changed since", "not there yet", "past its time"],
)
def test_what_was_decided_on_another_value_is_refused(
    before: KvEntry | None, wanted: int, current: int
) -> None:
    with pytest.raises(VersionConflict) as refused:
        put(before, asked(if_version=wanted), version=6, now_ms=NOW_MS)

    assert refused.value.facts == {"key": "k", "wanted": wanted, "current": current}


def test_without_a_condition_anything_is_overwritten() -> None:
    check_version(None, "k", None)
    check_version(entry(), "k", None)


# --- time ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expires_at_ms", "expected"),
    [(None, False), (NOW_MS + 1, False), (NOW_MS, True), (NOW_MS - 1, True)],
)
def test_a_value_is_gone_from_its_moment_on(
    expires_at_ms: int | None,
    expected: bool,  # noqa: FBT001 - a parameter of a test
) -> None:
    one = entry(expires_at_ms=expires_at_ms)

    assert is_over(one, NOW_MS) is expected
    assert live_entry(one, NOW_MS) == (None if expected else one)
    assert live_entry(None, NOW_MS) is None


# --- in any order -------------------------------------------------------------------------------

Steps = st.lists(
    st.tuples(
        st.sampled_from(["look", "put", "delete"]),
        st.integers(0, 2),  # who
        st.integers(1, 5),  # how long it is kept, if at all
        st.integers(0, 3),  # how much time passes
    ),
    max_size=60,
)


@given(Steps)
def test_whoever_adds_on_condition_of_what_it_saw_loses_no_addition(
    steps: list[tuple[str, int, int, int]],
) -> None:
    """Three callers look and add one, at any time after, to what they saw; none adds twice."""
    current: KvEntry | None = None
    version = now_ms = expected = 0
    seen: dict[int, KvEntry | None] = {}
    for kind, who, ttl_ms, passed_ms in steps:
        now_ms += passed_ms
        before = live_entry(current, now_ms)
        expected = 0 if before is None else expected
        if kind == "look":
            seen[who] = before
        elif kind == "put" and who in seen:
            saw = seen.pop(who)
            event = PutValue(
                key="k",
                value=Raw(str(1 + (0 if saw is None else int(saw.value))).encode()),
                ttl_ms=ttl_ms,
                if_version=ABSENT if saw is None else saw.version,
            )
            try:
                current = put(current, event, version=version + 1, now_ms=now_ms)
            except VersionConflict:
                assert (ABSENT if before is None else before.version) != event.if_version
            else:
                version += 1
                expected += 1
                assert int(current.value) == expected
        elif kind == "delete":
            current = None
