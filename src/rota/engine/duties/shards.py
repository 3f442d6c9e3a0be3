"""Members that have been silent for too long lose their shards, and what is due is rebalanced.

While there are services, each sweep says itself when the next one should be: long before the
interval is over.
"""

from rota.core.shards.events import SweepServices
from rota.engine.duties.duty import Duty

SHARDS = Duty(
    name="shards",
    interval_ms=1_000,
    event=lambda _now_ms, _settings: SweepServices(),
)
