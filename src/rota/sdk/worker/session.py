"""One registration of a worker, valid until the coordinator refuses it.

The lease counts from when the last answered heartbeat (or the registration) was *sent*, while the
coordinator counts from its arrival: the worker stops before others get its work.
"""

from rota.messages import WorkerView

MARGIN = 0.1  # of a lease, reserved for stopping handlers
MAX_MARGIN_S = 1.0


class WorkerSession:
    def __init__(self, view: WorkerView, *, sent_at: float) -> None:
        self.worker_id = view.id
        self.incarnation = view.incarnation
        self.is_over = False
        self.started_at = sent_at
        self.renewed_at = sent_at
        self.set_terms(view.heartbeat_interval_ms, view.lease_ms)

    def set_terms(self, heartbeat_interval_ms: int, lease_ms: int) -> None:
        self.interval_s = heartbeat_interval_ms / 1000
        self.lease_s = lease_ms / 1000

    @property
    def ends_at(self) -> float:
        """When handlers must be stopped, unless the session is renewed before."""
        return self.renewed_at + self.lease_s - min(self.lease_s * MARGIN, MAX_MARGIN_S)
