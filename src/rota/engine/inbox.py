"""What became of the tasks that came with others' transactions? Counted, and the bad ones named.

Whoever wrote them is long gone, so what is wrong with one is said here as well as in the task.
"""

import structlog

from rota.core.replies import Taken
from rota.engine.figures import Figures

log = structlog.get_logger("rota.engine")


def note_taken(figures: Figures, taken: Taken) -> None:
    refused = len(taken.refused)
    figures.inbox["duplicate"] += taken.duplicates
    figures.inbox["refused"] += refused
    figures.inbox["accepted"] += taken.count - taken.duplicates - refused
    for key, error in taken.refused:
        log.warning(
            "a task of another's transaction cannot be accepted",
            key=key,
            reason=error.type,
            problem=error.message,
        )
