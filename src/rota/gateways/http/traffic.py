"""How much is asked of us over HTTP? Counted per endpoint, so that no caller can add a row."""

from collections import Counter


class Traffic:
    def __init__(self) -> None:
        self.in_flight = 0
        self.answers: Counter[tuple[str, str, int]] = Counter()  # by method, path and status

    def note(self, method: str, path: str, status: int) -> None:
        self.answers[method, path, status] += 1
