"""Is this worker still the one the coordinator knows? A session is one registration of it.

Its lease counts from the moment the last answered beat (or the registration) was *sent*, while the
coordinator counts from when that arrived: we stop before it gives our work to others.
"""

import time

from rota.messages import WorkerView

MARGIN = 0.1  # of a lease, kept back for stopping handlers
MAX_MARGIN_S = 1.0


def now_s() -> float:
    """Time that also passes while the machine sleeps, where the system can tell."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Session:
    def __init__(self, view: WorkerView, *, sent_at: float) -> None:
        self.worker_id = view.id
        self.incarnation = view.incarnation
        self.is_over = False
        self.started_at = sent_at
        self.renewed_at = sent_at
        self.take_terms(view.heartbeat_interval_ms, view.lease_ms)

    def take_terms(self, heartbeat_interval_ms: int, lease_ms: int) -> None:
        self.interval_s = heartbeat_interval_ms / 1000
        self.lease_s = lease_ms / 1000

    @property
    def ends_at(self) -> float:
        """When handlers must be stopped, unless the session is renewed before."""
        return self.renewed_at + self.lease_s - min(self.lease_s * MARGIN, MAX_MARGIN_S)
