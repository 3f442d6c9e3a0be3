"""Is a lock still ours? As far as can be known without asking: for its time since we last asked.

The coordinator counts from when it heard the question that it answered, we count from when we sent
it: we know that it is over before it can be anybody else's.
"""

DRIFT = 0.02  # clocks run at different speeds: so much of its time we do not count on
RENEWALS = 3  # in the time of a lock
TRIES = 10  # in its time, once one of them got no answer
LONGEST_PAUSE_S = 1.0  # between two such tries


class Tenure:
    """One time of having a lock. Moments are of one clock that only rises, in seconds."""

    def __init__(self, *, fence: int, ttl_s: float, sent_at: float) -> None:
        self.fence = fence
        self.ttl_s = ttl_s
        self.renewed_at = sent_at
        self.is_lost = False  # the coordinator says so
        self._tried_at = sent_at

    @property
    def ends_at(self) -> float:
        return self.renewed_at + self.ttl_s * (1 - DRIFT)

    def is_held(self, now: float) -> bool:
        return not self.is_lost and now < self.ends_at

    def renew(self, *, sent_at: float) -> None:
        """The coordinator has answered what was sent then."""
        self.renewed_at = max(self.renewed_at, sent_at)
        self._tried_at = self.renewed_at

    def fail(self, *, now: float) -> None:
        """Nothing came back of a renewal."""
        self._tried_at = now

    @property
    def next_at(self) -> float:
        """When to ask for it anew; never later than its end."""
        pause_s = self.ttl_s / RENEWALS
        if self._tried_at > self.renewed_at:
            pause_s = min(self.ttl_s / TRIES, LONGEST_PAUSE_S)
        return min(self._tried_at + pause_s, self.ends_at)
