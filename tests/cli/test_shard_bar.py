import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rota.cli.render.service import COLOURS, draw_service, is_coloured
from rota.cli.render.service_tables import bar_lines, member_table, state
from rota.cli.render.shard_bar import MAX_LINES, labels, ranges, shard_bar_of
from rota.messages.shards import MemberView, ServiceView
from tests.cli.looks import even, member, service

WIDTH = 80


def test_ten_shards_of_three_members_are_ten_letters() -> None:
    view = service(10, member("a", range(4)), member("b", range(4, 7)), member("c", range(7, 10)))

    lines = list(bar_lines(view, width=WIDTH))

    assert lines == ["0 A  A  A  A  B  B  B  C  C  C"]


def test_what_is_to_be_given_up_is_small_and_what_nobody_owns_is_a_dot() -> None:
    view = service(100, member("a", range(90), range(60)), member("b", (), range(60, 100)))

    first, second, meaning = bar_lines(view, width=WIDTH)

    assert first == " 0 " + "A" * 60 + "a" * 10
    assert second == "70 " + "a" * 20 + "." * 10
    assert meaning == "small letters: to be given up by this owner; dots: no owner"


def test_many_shards_share_a_cell_and_one_that_is_unowned_is_seen_among_them() -> None:
    view = service(100_000, member("a", [*range(77_777), *range(77_778, 100_000)]))

    *cells, meaning = bar_lines(view, width=WIDTH)

    assert len(cells) <= MAX_LINES
    assert "".join(cells).count(".") == 1
    assert meaning == "500 shards in each place; dots: no owner"


def test_more_members_than_letters_get_two_each() -> None:
    lines = list(bar_lines(even(1_000, 40), width=WIDTH))

    assert lines[0].split()[:4] == ["0", "AA", "AA", "AA"]
    assert lines[-2].split()[-1] == "BN"


@given(
    shard_count=st.integers(0, 200_000),
    members=st.integers(1, 800),
    width=st.integers(1, 300),
    label_width=st.integers(1, 3),
)
def test_a_strip_has_a_cell_for_every_shard_and_few_lines(
    shard_count: int, members: int, width: int, label_width: int
) -> None:
    strip = shard_bar_of(even(shard_count, members), width=width, label_width=label_width)

    lines = list(strip.lines())
    covered = len(strip.cells) * strip.shards_per_cell

    assert len(lines) <= MAX_LINES
    assert sum(len(cells) for _, cells in lines) == len(strip.cells)
    assert covered - strip.shards_per_cell < shard_count <= covered or shard_count == 0


@given(
    shard_count=st.integers(1, 200_000), width=st.integers(20, 300), label_width=st.integers(1, 3)
)
def test_no_line_of_a_strip_is_wider_than_the_screen(
    shard_count: int, width: int, label_width: int
) -> None:
    strip = shard_bar_of(service(shard_count), width=width, label_width=label_width)

    number = len(str(shard_count - 1)) + 1

    assert number + strip.cells_per_line * strip.cell_width <= width


def test_labels_tell_all_members_apart() -> None:
    assert labels(3) == ["A", "B", "C"]
    assert labels(27)[-2:] == ["AZ", "BA"]
    assert len(set(labels(10_000))) == 10_000


@pytest.mark.parametrize(
    ("shards", "text"),
    [
        ((), "-"),
        ((5,), "5"),
        ((0, 1, 2, 3), "0-3"),
        ((0, 2, 3, 9), "0, 2-3, 9"),
        ((0, 2, 4, 6, 7, 8), "0, 2, and 4 more"),
    ],
    ids=["none", "one", "a run", "several", "too many"],
)
def test_shards_are_told_as_ranges(shards: tuple[int, ...], text: str) -> None:
    most = 2 if "more" in text else None

    assert ranges(shards, most=most) == text


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (member("w", [1, 2]), "settled"),
        (member("w", [1, 2], [1]), "gives up 1"),
        (member("w", [1, 2], [2, 3, 4]), "gives up 1, awaits 2"),
        (member("w", [1, 2], [], draining=True), "draining, 2 left"),
        (member("w", draining=True), "drained"),
        (member("w", [1], fenced="kept a shard"), "fenced"),
    ],
    ids=["settled", "gives up", "both", "draining", "drained", "fenced"],
)
def test_the_state_of_a_member_says_what_it_is_at(seen: MemberView, told: str) -> None:
    assert state(seen) == told


def test_columns_that_would_say_the_same_everywhere_are_left_out() -> None:
    alike = service(2, member("a", [0]), member("b", [1]))
    mixed = service(2, member("a", [0], weight=2.0), member("b", [1], protocol=1, max_shards=4))

    assert member_table(alike).columns[-3:] == ("has", "last beat", "shards")
    assert member_table(mixed).columns[4:8] == ("has", "weight", "at most", "protocol")


def test_a_terminal_gets_a_colour_for_each_owner() -> None:
    view = service(10, member("a", range(5), [*range(5), 8]), member("b", range(5, 9), range(5, 8)))

    text = _drawn_text(Console(width=WIDTH, force_terminal=True, color_system="256"), view)

    assert f"48;5;{COLOURS[0]}m A  A  A  A  A " in text
    assert f"48;5;{COLOURS[1]}m B  B  B " in text
    assert f"38;5;{COLOURS[0]}m b " in text  # to be a's
    assert "·" in text


def test_a_terminal_without_colours_gets_letters() -> None:
    view = service(10, member("a", range(5)), member("b", range(5, 9)))
    console = Console(width=WIDTH, force_terminal=True, no_color=True)

    assert not is_coloured(console)
    assert "0 A  A  A  A  A  B  B  B  B  ." in _drawn_text(console, view)


def test_on_a_low_screen_those_members_are_shown_where_something_goes_on() -> None:
    view = even(100, 50)
    busy = member("w0042", [84, 85], [84])
    view.members[42] = busy
    console = Console(width=WIDTH, force_terminal=True, no_color=True)

    text = _drawn_text(console, view, height=20)

    assert "w0042" in text
    assert re.search(r"and \d+ other members", text)
    assert len(text.splitlines()) <= 20


def test_names_that_could_write_to_the_terminal_are_made_visible() -> None:
    view = service(1, member("\x1b[2J", [0]))

    text = _drawn_text(Console(width=WIDTH, force_terminal=True, no_color=True), view)

    assert "\\x1b[2J" in text


def _drawn_text(console: Console, view: ServiceView, height: int | None = None) -> str:
    with console.capture() as captured:
        console.print(
            draw_service(view, width=WIDTH, height=height, is_coloured=is_coloured(console))
        )
    return captured.get()
