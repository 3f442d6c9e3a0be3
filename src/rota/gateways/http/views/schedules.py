"""Schedules and their firings as answers."""

from collections.abc import Sequence

import msgspec

from rota.core import ids
from rota.core.schedules.changes import due_at_ms
from rota.core.schedules.model import Firing, ScheduleRecord
from rota.messages.schedules import FiringView, ScheduleView


def firing_view(firing: Firing) -> FiringView:
    item_id = None if firing.id is None else ids.to_text(firing.id)
    return FiringView(
        nominal_ms=firing.nominal_ms,
        fired_at_ms=firing.fired_at_ms,
        outcome=firing.outcome,
        task_id=None if firing.is_run else item_id,
        run_id=item_id if firing.is_run else None,
        manual=firing.is_manual,
        count=firing.count,
        reason=firing.reason or None,
    )


def schedule_view(record: ScheduleRecord, firings: Sequence[Firing]) -> ScheduleView:
    spec, state = record.spec, record.state
    pause, next_at_ms = state.pause, due_at_ms(record)
    # What is fired is shown as its author gave it.
    given = msgspec.json.decode(record.document, type=dict[str, msgspec.Raw])
    return ScheduleView(
        name=record.name,
        cron=spec.cron,
        every_ms=spec.every_ms,
        offset_ms=None if spec.every_ms is None else spec.offset_ms,
        at_ms=spec.at_ms,
        timezone=spec.timezone,
        exclude=spec.exclude,
        starts_at_ms=spec.starts_at_ms,
        ends_at_ms=spec.ends_at_ms,
        max_firings=spec.max_firings,
        task=given.get("task"),
        run=given.get("run"),
        missed=spec.missed,
        catch_up_ms=spec.catch_up_ms,
        overlap=spec.overlap,
        jitter_ms=spec.jitter_ms,
        pause_on_failure=spec.pause_on_failure,
        with_times=spec.with_times,
        paused=pause is not None,
        paused_at_ms=None if pause is None else pause.at_ms,
        paused_by=None if pause is None else pause.by,
        note=None if pause is None else pause.note or None,
        next_at_ms=next_at_ms,
        next_nominal_ms=None if next_at_ms is None else state.next_nominal_ms,
        last_fired_at_ms=state.last_fired_at_ms,
        previous_success_ms=state.previous_success_ms,
        fired=state.firings,
        failures=state.failures,
        waiting=len(state.waiting),
        firings=[firing_view(one) for one in firings],
        source=state.source,
        pinned=state.is_pinned,
        orphaned=state.is_orphaned,
        created_at_ms=state.created_at_ms,
        updated_at_ms=state.updated_at_ms,
    )
