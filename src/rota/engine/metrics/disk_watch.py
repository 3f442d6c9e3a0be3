"""Watches the free space of the disk that the store is on.

A full disk stops every change. The watch warns before: once when the free space falls below the
setting `store_disk_low_bytes`, and again after it was clearly above it.
"""

import structlog

from rota.engine.metrics.metrics import Metrics
from rota.store.database import Database

log = structlog.get_logger("rota.store")

RECOVERED = 1.1  # times the threshold: free space that varies around it is not reported each time


class DiskWatch:
    def __init__(self, database: Database, metrics: Metrics, *, low_bytes: int) -> None:
        self._database = database
        self._metrics = metrics
        self._low_bytes = low_bytes

    def look(self) -> None:
        """Measure the free space, and log when it becomes low, or enough again."""
        try:
            free = self._database.disk_free_bytes()
        except OSError as error:
            log.warning("store_disk_unknown", error=str(error))
            free = None
        metrics = self._metrics
        metrics.store_disk_free_bytes = free
        if free is None:
            return
        if not metrics.is_store_disk_low and free < self._low_bytes:
            metrics.is_store_disk_low = True
            log.warning("store_disk_low", free_bytes=free, low_bytes=self._low_bytes)
        elif metrics.is_store_disk_low and free >= self._low_bytes * RECOVERED:
            metrics.is_store_disk_low = False
            log.info("store_disk_recovered", free_bytes=free, low_bytes=self._low_bytes)
