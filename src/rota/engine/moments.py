"""When does something that was decided come up?"""

from collections.abc import Mapping
from typing import Any

from rota.core.decisions import AddTask, Decision, LeaseTask, RequeueTask


def earlier(one_ms: int | None, other_ms: int | None) -> int | None:
    return min((moment for moment in (one_ms, other_ms) if moment is not None), default=None)


def next_moment_ms(decisions: Mapping[type[Decision], list[Any]]) -> int | None:
    """The earliest moment these decisions wait for: a due time, a deadline, a time limit."""
    moments = [one.due_at_ms for one in decisions.get(RequeueTask, ())]
    moments += [one.deadline_ms for one in decisions.get(LeaseTask, ())]
    for one in decisions.get(AddTask, ()):
        if one.due_at_ms is not None:
            moments.append(one.due_at_ms)
        if one.task.start_within_ms is not None:
            moments.append(one.created_at_ms + one.task.start_within_ms)
    return min((moment for moment in moments if moment is not None), default=None)
