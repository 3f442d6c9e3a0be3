import pytest

from rota.cli.render.formatting import absolute, duration, relative

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "-"),
        (0, "0 ms"),
        (999.9, "999 ms"),
        (1_000, "1 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (7_200_000, "2 h"),
        (3 * 86_400_000, "3 d"),
    ],
)
def test_a_duration_is_told_in_its_largest_unit(milliseconds: float | None, text: str) -> None:
    assert duration(milliseconds) == text


@pytest.mark.parametrize(
    ("moment_ms", "text"),
    [
        (None, "-"),
        (NOW_MS, "now"),
        (NOW_MS - 999, "now"),
        (NOW_MS - 5_000, "5 s ago"),
        (NOW_MS + 120_000, "in 2 min"),
    ],
)
def test_a_moment_is_told_from_now(moment_ms: int | None, text: str) -> None:
    assert relative(moment_ms, now_ms=NOW_MS) == text


def test_a_moment_in_detail_is_a_date_with_its_zone() -> None:
    told = absolute(NOW_MS - 3_600_000, now_ms=NOW_MS)

    assert told is not None
    assert told.startswith("2027-01-1")
    assert told.endswith("(1 h ago)")
