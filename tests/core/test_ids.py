import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.ids import COUNTER_BITS, from_text, next_ids, to_text

TASK_IDS = st.integers(0, 2**63 - 1)
MOMENTS_MS = st.integers(0, 2**41)


@given(st.lists(st.tuples(st.integers(0, 1_000), MOMENTS_MS), max_size=30))
def test_ids_only_rise_whatever_the_clock_does(requests: list[tuple[int, int]]) -> None:
    last = 0
    given_out: list[int] = []

    for count, now_ms in requests:
        ids = next_ids(count, last=last, now_ms=now_ms)
        assert len(ids) == count
        given_out += ids
        last = ids[-1] if ids else last

    assert given_out == sorted(set(given_out))


def test_an_id_holds_the_millisecond_of_its_acceptance() -> None:
    (task_id,) = next_ids(1, last=0, now_ms=1_800_000_000_000)

    assert task_id >> COUNTER_BITS == 1_800_000_000_000


def test_more_tasks_than_a_millisecond_has_ids_borrow_from_the_next() -> None:
    ids = next_ids(2**COUNTER_BITS + 1, last=0, now_ms=5)

    assert ids[-1] >> COUNTER_BITS == 6
    assert next_ids(1, last=ids[-1], now_ms=5)[0] == ids[-1] + 1


@given(TASK_IDS)
def test_an_id_survives_its_text(task_id: int) -> None:
    assert from_text(to_text(task_id)) == task_id


@given(TASK_IDS, TASK_IDS)
def test_texts_sort_as_ids_do(one: int, other: int) -> None:
    assert (to_text(one) < to_text(other)) == (one < other)


@pytest.mark.parametrize(
    "text",
    ["", "1", "0" * 15, "0" * 17, "8" + "0" * 15, "f" * 16, "000000000000000G", "0" * 15 + "A"],
)
def test_a_text_that_no_task_has_is_no_id(text: str) -> None:
    assert from_text(text) is None


@given(st.text(max_size=20))
def test_any_text_is_an_id_or_none_and_never_a_crash(text: str) -> None:
    found = from_text(text)

    assert found is None or to_text(found) == text
