"""Limits as wait reasons: which limit keeps a queued task from starting.

The limits are asked in the order in which the dispatcher asks them: first those of the queue, then
the slots and the rates of the task. The first that refuses is the reason.
"""

from collections.abc import Mapping, Sequence

from rota.core.dispatch.wait_reasons import Explanation
from rota.core.flows import rates
from rota.core.flows.commands import BlockedLane, LimitState
from rota.core.flows.model import Charge, FlowSpec, Slot, flow_spec
from rota.core.flows.queue_settings import QUEUE_KEY, QueueSettings, limits_of_queue
from rota.core.tasks.model import FINISHED, TaskRecord

NO_FLOW = FlowSpec()
DAY_S = 86_400


def limit_keys(task: TaskRecord, settings: QueueSettings) -> tuple[str, ...]:
    """The keys of all limits that a task has, those of its queue first."""
    of_queue = (one.key for one in limits_of_queue(task.lane.queue, settings))
    return (*of_queue, *_flow(task).keys)


def explain_queue(queue: str, settings: QueueSettings, *, running: int) -> Explanation | None:
    """What the settings of a queue have against the start of its tasks; None: nothing is known."""
    most = settings.max_running
    if most == 0:
        return _paused(f"max_running of queue {queue!r}", None)
    if most is None or running < most:
        return None
    text = f"max_running of queue {queue!r}: {running} of {most} running"
    return Explanation(code="limit_full", text=text)


def explain_blocked(blocked: BlockedLane, *, shows_counts: bool) -> Explanation:
    """The limit that all queued tasks of a lane wait for, or one of several."""
    state = blocked.limit
    record = state.record
    name = _name_of(blocked.lane.queue, state)
    if record.limit == 0 and blocked.keys == 1:
        return _paused(name, record.key)
    if state.opens_at_ms is not None:
        text = f"next start at {_clock_time(state.opens_at_ms)}"
    else:
        text = f"{state.running} of {record.limit} running" if shows_counts else "no slot is free"
    more = blocked.keys - 1
    others = f", and {more} other limit{'s' if more > 1 else ''}" if more else ""
    return Explanation(
        code="limit_full" if record.kind == "concurrency" else "rate_closed",
        text=f"{name}: {text}{others}",
        limit_key=record.key,
        opens_at_ms=state.opens_at_ms if blocked.keys == 1 else None,
    )


def explain_limits(
    task: TaskRecord,
    states: Sequence[LimitState],
    *,
    position: int | None,
    now_ms: int,
    shows_counts: bool,
) -> Explanation | None:
    """The first limit that does not let a queued task start; None: its limits have room.

    Position: its place in its flow. A limit may be shared with tasks of other queues, so callers
    that are bound to queues are not shown how many run.
    """
    by_key = {one.record.key: one for one in states}
    found = _first_refusal(task, by_key, now_ms=now_ms)
    if found is None:
        return None
    state, opens_at_ms = found
    record = state.record
    is_of_queue = record.key.startswith(QUEUE_KEY)
    limit_key = None if is_of_queue else record.key
    if record.limit == 0:
        return _paused(_name(task, state), limit_key)
    if opens_at_ms is not None:
        text = f"next start at {_clock_time(opens_at_ms)}"
        code = "rate_closed"
    else:
        is_shown = shows_counts or is_of_queue
        text = f"{state.running} of {record.limit} running" if is_shown else "no slot is free"
        code = "limit_full"
    return Explanation(
        code=code,
        text=f"{_name(task, state)}: {text}{_ahead(position)}",
        limit_key=limit_key,
        opens_at_ms=opens_at_ms,
    )


def _paused(name: str, limit_key: str | None) -> Explanation:
    return Explanation(
        code="limit_paused",
        text=f"{name} is 0: nothing starts until it is raised",
        is_stuck=True,
        limit_key=limit_key,
    )


def _first_refusal(
    task: TaskRecord, by_key: Mapping[str, LimitState], *, now_ms: int
) -> tuple[LimitState, int | None] | None:
    """The limit that refuses a task, and when it opens if it is a rate."""
    flow = _flow(task)
    of_queue = [one for one in by_key.values() if one.record.key.startswith(QUEUE_KEY)]
    slots = [Slot(one.record.key) for one in of_queue if one.record.kind == "concurrency"]
    for slot in (*slots, *flow.slots):
        state = by_key.get(slot.key)
        if state is None or (slot.hold == "task" and _has_kept_slot(task)):
            continue
        if state.running >= state.record.limit:
            return state, None
    charges = [Charge(one.record.key) for one in of_queue if one.record.kind == "rate"]
    for charge in (*charges, *flow.charges):
        state = by_key.get(charge.key)
        if state is None:
            continue
        opens_at_ms = rates.opens_at_ms(state.record, charge.cost, now_ms=now_ms)
        if opens_at_ms is not None:
            return state, opens_at_ms
    return None


def _flow(task: TaskRecord) -> FlowSpec:
    options = task.options
    return flow_spec(options.concurrency, options.rate, options.fair_key) or NO_FLOW


def _has_kept_slot(task: TaskRecord) -> bool:
    """Whether a queued task is between two attempts, and not submitted or retried by a caller."""
    return bool(task.log) and task.log[-1].next_state not in FINISHED


def _name(task: TaskRecord, state: LimitState) -> str:
    return _name_of(task.lane.queue, state)


def _name_of(queue: str, state: LimitState) -> str:
    is_rate = state.record.kind == "rate"
    if state.record.key.startswith(QUEUE_KEY):
        return f"{'rate' if is_rate else 'max_running'} of queue {queue!r}"
    return f"{'rate' if is_rate else 'limit'} {state.record.key!r}"


def _clock_time(at_ms: int) -> str:
    """A time of day in UTC; rounded up, so that it is not over before the start."""
    minutes, seconds = divmod(-(-at_ms // 1_000) % DAY_S, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02} UTC"


def _ahead(position: int | None) -> str:
    if position is None:
        return ", more than a thousand before it"
    return f", {position - 1} before it" if position > 1 else ""
