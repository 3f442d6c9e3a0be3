"""How much gets done, and is it as much as before?"""

import statistics
import time

from tests.faults.callers import Book

WINDOW_S = 1.0
WINDOWS = 3
ENOUGH = 0.9
RECOVERY_S = 90.0


def completed_per_second(book: Book) -> float:
    """Over the next window; completions are counted by the worker that reports them."""
    before, began = book.accepted, time.monotonic()
    book.wait_until(began + WINDOW_S)
    return (book.accepted - before) / (time.monotonic() - began)


def usual_rate(book: Book) -> float:
    """What gets done a second while all is well.

    The callers come at a pace of their own, far below what the coordinators could do, so this is
    hardly about the machine.
    """
    book.wait_for_more(20)
    return statistics.median(completed_per_second(book) for _ in range(WINDOWS))


def wait_recovered(book: Book, usual: float) -> float:
    """Wait until nearly as much gets done as before; the answer is how much."""
    ends_at = time.monotonic() + RECOVERY_S
    best = 0.0
    while time.monotonic() < ends_at:
        best = max(best, completed_per_second(book))
        if best >= ENOUGH * usual:
            return best
    raise AssertionError(f"{best:.0f}/s at the best, {usual:.0f}/s before")
