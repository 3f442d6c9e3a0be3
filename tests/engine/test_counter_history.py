import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.engine.runs import counter_history
from rota.engine.runs.counter_history import CounterHistory, CounterSnapshot

ENTRIES = st.lists(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-3, 3)), max_size=4), max_size=30
)


@pytest.mark.parametrize("every", [1, 2, 7, 1_000])
@given(ENTRIES)
def test_a_moment_is_what_all_changes_up_to_it_make(
    every: int, entries: list[list[tuple[str, int]]]
) -> None:
    film, figures = CounterHistory(), [CounterSnapshot()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counter_history, "STILL_EVERY", every)
        for number, changes in enumerate(entries, start=1):
            now = CounterSnapshot(dict(figures[-1].figures))
            for name, by in changes:
                film.add(by, name)
                now.add(by, name)
            film.cut(number, 100 + number)
            figures.append(now)

        for number, expected in enumerate(figures):
            found = film.at(number)
            assert dict(found.under()) == dict(expected.under())
            assert found.number == number
            assert found.at_ms == (100 + number if number else None)
            assert found.last_number == len(entries)
