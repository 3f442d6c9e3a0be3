"""Values past their time are forgotten, and locks past theirs go to the next in line.

While there are locks, each sweep of them says itself when the next one should be.
"""

from rota.core.locks import SweepLocks
from rota.core.memory import SweepMemory
from rota.engine.duties.duty import Duty
from rota.engine.keeping import SWEPT_PER_STEP

LOCKS = Duty(
    name="locks",
    interval_ms=1_000,
    event=lambda _now_ms, _settings: SweepLocks(),
    full_step=SWEPT_PER_STEP,
)
MEMORY = Duty(
    name="memory",
    interval_ms=5_000,
    event=lambda _now_ms, _settings: SweepMemory(),
    full_step=SWEPT_PER_STEP,
)
