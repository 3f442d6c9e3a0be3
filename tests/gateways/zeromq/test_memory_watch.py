"""The memory watch tells growth that unfinished bytes have caused from other growth."""

import sys
from collections.abc import Iterator

import pytest

from rota.gateways.zeromq.memory_watch import (
    FLOOR_BYTES,
    FREEING_S,
    MOST_FREEING_S,
    MOST_PER_BYTE,
    MemoryWatch,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts memory as Linux does")

MEBIBYTE = 1024 * 1024
MOST_GROWTH_BYTES = 32 * MEBIBYTE
GROWTH_BYTES = 2 * MOST_GROWTH_BYTES
ENOUGH_BYTES = 2 * MOST_GROWTH_BYTES // MOST_PER_BYTE  # as empty frames


class Clock:
    now_s = 0.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> Iterator[MemoryWatch]:
    watch = MemoryWatch(most_growth_bytes=MOST_GROWTH_BYTES, now_s=lambda: clock.now_s)
    yield watch
    watch.close()


def grow() -> bytearray:
    """Take memory, and touch it."""
    return bytearray(b"x") * GROWTH_BYTES


def test_memory_that_outgrows_the_unfinished_bytes_is_noticed(watch: MemoryWatch) -> None:
    assert not watch.has_outgrown(ENOUGH_BYTES)

    taken = grow()

    assert watch.has_outgrown(ENOUGH_BYTES)
    assert watch.is_close
    assert len(taken) == GROWTH_BYTES


def test_unfinished_bytes_that_are_too_few_are_not_blamed(watch: MemoryWatch) -> None:
    taken = grow()

    assert not watch.has_outgrown(MOST_GROWTH_BYTES // MOST_PER_BYTE)
    assert len(taken) == GROWTH_BYTES


def test_memory_that_the_unfinished_bytes_are_is_not_growth(watch: MemoryWatch) -> None:
    taken = grow()

    assert not watch.has_outgrown(GROWTH_BYTES)
    assert len(taken) == GROWTH_BYTES


def test_growth_counts_from_when_hardly_anything_was_unfinished(watch: MemoryWatch) -> None:
    taken = grow()
    assert not watch.has_outgrown(FLOOR_BYTES)

    assert not watch.has_outgrown(ENOUGH_BYTES)
    assert len(taken) == GROWTH_BYTES


def test_memory_that_is_not_freed_is_held_against_peers_only_for_a_while(
    watch: MemoryWatch, clock: Clock
) -> None:
    taken = grow()
    assert watch.has_outgrown(ENOUGH_BYTES)
    assert not watch.has_outgrown(FLOOR_BYTES)
    assert watch.has_outgrown(FLOOR_BYTES + 1)

    clock.now_s += FREEING_S

    assert not watch.has_outgrown(ENOUGH_BYTES)
    assert not watch.is_close
    assert len(taken) == GROWTH_BYTES


def test_peers_that_keep_coming_are_not_dropped_for_ever(watch: MemoryWatch, clock: Clock) -> None:
    taken = grow()
    while watch.has_outgrown(ENOUGH_BYTES):
        clock.now_s += FREEING_S / 2

    assert FREEING_S < clock.now_s <= MOST_FREEING_S
    assert len(taken) == GROWTH_BYTES


def test_memory_that_was_freed_does_not_hide_the_next_growth(
    watch: MemoryWatch, clock: Clock
) -> None:
    for _ in range(3):
        taken = [bytes(16_000) for _ in range(GROWTH_BYTES // 16_000)]
        assert watch.has_outgrown(ENOUGH_BYTES)
        kept = taken[-1]  # so that the memory before it is not returned by itself
        taken.clear()
        clock.now_s += FREEING_S
        assert not watch.has_outgrown(ENOUGH_BYTES)
        assert len(kept) == len(bytes(16_000))
