"""What tenants have had of their queue lately.

Each use counts less the longer ago it was: half after `HALF_LIFE_MS`. So a tenant takes two
numbers, however many tasks it has started. The figures are for people; no decision rests on them.
"""

HALF_LIFE_MS = 60_000
MOST_TENANTS = 20_000  # those that were counted longest ago are forgotten


class FadingSum:
    """A sum of which each part fades as time passes."""

    __slots__ = ("_at_ms", "_value")

    def __init__(self) -> None:
        self._value = 0.0
        self._at_ms = 0

    def add(self, amount: float, *, now_ms: int) -> None:
        self._value = self.at(now_ms) + amount
        self._at_ms = max(self._at_ms, now_ms)

    def at(self, now_ms: int) -> float:
        passed_ms = max(0, now_ms - self._at_ms)
        return float(self._value * 0.5 ** (passed_ms / HALF_LIFE_MS))


class RecentShares:
    """The recent use of each tenant, and of all tenants of each queue."""

    def __init__(self) -> None:
        self._of_tenant: dict[tuple[str, str], FadingSum] = {}  # used last: at the end
        self._of_queue: dict[str, FadingSum] = {}

    def add(self, queue: str, tenant: str, amount: float, *, now_ms: int) -> None:
        used = self._of_tenant.pop((queue, tenant), None) or FadingSum()
        used.add(amount, now_ms=now_ms)
        self._of_tenant[queue, tenant] = used
        if len(self._of_tenant) > MOST_TENANTS:
            del self._of_tenant[next(iter(self._of_tenant))]
        self._of_queue.setdefault(queue, FadingSum()).add(amount, now_ms=now_ms)

    def share(self, queue: str, tenant: str, *, now_ms: int) -> float | None:
        """The part that a tenant has had; None: no tenant of the queue has had anything."""
        whole = self._of_queue.get(queue)
        if whole is None or not (total := whole.at(now_ms)):
            return None
        used = self._of_tenant.get((queue, tenant))
        return 0.0 if used is None else min(1.0, used.at(now_ms) / total)
