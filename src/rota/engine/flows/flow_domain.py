"""Limits and settings of queues inside a batch, and the writes of all changed limits."""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never, get_args

from rota.core import limits as core_limits
from rota.core.decisions import AddTask, Decision, ReplaceTask, ReviveTask
from rota.core.events import Event
from rota.core.flows import commands as rules
from rota.core.flows.commands import (
    BlockedLane,
    BlockedLanes,
    ChangeSettings,
    CloseLimit,
    ConsumeLimit,
    DropLimit,
    FlowCommand,
    FlowReply,
    LimitState,
    LimitStates,
    LookAtBlocked,
    LookAtLimits,
    LookAtTenants,
    PutLimit,
    RecountLimits,
    WatchTargets,
)
from rota.core.flows.model import LimitRecord
from rota.core.flows.queue_settings import (
    QueueSettings,
    is_late,
    target_met,
    target_missed,
    targets,
)
from rota.core.replies import Done
from rota.core.tasks.model import NewTask
from rota.engine.commit.batch import Batch, Domain
from rota.engine.commit.request import earlier
from rota.engine.flows.recount import recount
from rota.engine.working_set.held_flows import HeldFlows
from rota.engine.working_set.held_leases import HeldLeases
from rota.errors import LimitNotFound, QueueFull, TooMany
from rota.store.tasks.flows import FlowStore
from rota.store.tasks.queues import QueueStore

FULL_AGAIN_MS = 60_000  # between two events about one queue that refuses submissions


FEW_TASKS = 16  # of which each is looked at


def _may_name_limits(decisions: Mapping[type[Decision], list[Any]]) -> bool:
    """Whether one of these tasks may have a limit: as far as that is known at little cost."""
    if ReplaceTask in decisions or ReviveTask in decisions:
        return True
    added: Sequence[AddTask] = decisions.get(AddTask, ())
    if len(added) > FEW_TASKS:
        return True
    return any(_has_limits(one.task) for one in added)


def _has_limits(task: NewTask) -> bool:
    return task.concurrency is not None or task.rate is not None or task.fair_key is not None


class FlowDomain(Domain):
    COMMANDS = frozenset(get_args(FlowCommand))

    @classmethod
    def is_concerned(cls, batch: Batch) -> bool:
        """Whether a limit or a tenant is known, or a task of the batch may be the first with one.

        Any batch may start or end tasks that have limits.
        """
        flows = batch.held.flows
        return flows.is_used or bool(flows.limits.dropped) or _may_name_limits(batch.decisions)

    def load(self, commands: Any) -> None:
        """Open the rates that are due: the dispatcher of this batch may use them."""
        flows = self.batch.held.flows
        if flows.is_used or commands:
            flows.admission.wake_due(self.batch.context.now_ms)

    def reduce(self, command: FlowCommand) -> FlowReply | Done:
        now_ms = self.batch.context.now_ms
        match command:
            case PutLimit():
                return self._put(command)
            case DropLimit():
                return self._drop(command.key)
            case ConsumeLimit():
                return self._consume(command)
            case CloseLimit():
                record = self._known(command.key)
                rules.check_rate(record)
                limits = self.batch.held.flows.limits
                return self._state(limits.close(record, until_ms=now_ms + command.for_ms))
            case LookAtLimits():
                by_key = self.batch.held.flows.limits.by_key
                return LimitStates(
                    [self._state(by_key[key]) for key in command.keys if key in by_key]
                )
            case _:
                return self._reduce_of_queue(command)

    def _reduce_of_queue(
        self, command: ChangeSettings | LookAtTenants | LookAtBlocked | RecountLimits | WatchTargets
    ) -> FlowReply | Done:
        match command:
            case ChangeSettings():
                return self._change_settings(command)
            case LookAtTenants():
                tenants, now_ms = self.batch.held.flows.tenants, self.batch.context.now_ms
                return tenants.states(command.queue, command.most, now_ms=now_ms)
            case LookAtBlocked():
                return self._blocked_lanes()
            case RecountLimits():
                tx, lanes = self.batch.tx, self.batch.lanes
                fresh = HeldFlows.load(tx, lanes, HeldLeases.load(tx, lanes))
                return recount(self.batch.held.flows, fresh)
            case WatchTargets():
                return Done(self._watch_targets())
            case _:
                assert_never(command)

    def write(self) -> None:
        """Write the limits that any domain of the batch has changed."""
        flows = self.batch.held.flows
        if flows.queues.settings:
            self._note_late_starts()
            self._note_full_queues()
        if flows.limits.closed:
            self._tell_closed()
        refused = flows.admission.refused
        if refused:
            self.batch.refusals.update(refused)
            refused.clear()
        if flows.is_used or flows.limits.dropped:
            flows.limits.flush(self.batch.tx)
            delivery, opens_ms = self.batch.delivery, flows.admission.openings.next_ms()
            delivery.next_moment_ms = earlier(delivery.next_moment_ms, opens_ms)

    # --- limits -----------------------------------------------------------------------------------

    def _put(self, command: PutLimit) -> LimitState:
        held = self.batch.held.flows.limits
        before = held.by_key.get(command.key)
        if before is None and not held.has_room_for_key():
            most = core_limits.MAX_LIMIT_KEYS
            raise TooMany(
                f"{most} limits exist, which is the limit; let the tasks of some finish first",
                limit=most,
            )
        record = rules.put_limit(before, command, now_ms=self.batch.context.now_ms)
        self._use(record)
        self._tell_changed(before, record)
        return self._state(record)

    def _consume(self, command: ConsumeLimit) -> LimitState:
        before = self._known(command.key)
        used = rules.consume(before, command, now_ms=self.batch.context.now_ms)
        if used is None:
            return self._state(before)
        self._use(used)
        return LimitState(record=used, waiting=self._state(used).waiting)

    def _drop(self, key: str) -> LimitStates:
        flows, now_ms = self.batch.held.flows, self.batch.context.now_ms
        before = self._known(key)
        record = rules.unpin(before, now_ms=now_ms)
        if flows.numbers.is_named(key):
            self._use(record)
            self._tell_changed(before, record)
            return LimitStates([self._state(record)])
        flows.limits.drop(key)
        self.batch.events.append(Event(type="limit-deleted", subject=key))
        return LimitStates([])

    def _known(self, key: str) -> LimitRecord:
        record = self.batch.held.flows.limits.by_key.get(key)
        if record is None:
            raise LimitNotFound(key)
        return record

    def _use(self, record: LimitRecord) -> None:
        flows = self.batch.held.flows
        flows.limits.put(record)
        flows.numbers.note_put(record.key)
        flows.admission.wake(record.key, now_ms=self.batch.context.now_ms)

    def _state(self, record: LimitRecord) -> LimitState:
        held = self.batch.held.flows.limits
        return LimitState(
            record=record,
            running=held.running.get(record.key, 0),
            waiting=held.waiting.get(record.key, 0),
            opens_at_ms=held.opens_at_ms(record.key, now_ms=self.batch.context.now_ms),
        )

    # --- events -----------------------------------------------------------------------------------

    def _tell_changed(self, before: LimitRecord | None, record: LimitRecord) -> None:
        data: dict[str, Any] = {"kind": record.kind, "limit": record.limit}
        if before is not None and before.limit != record.limit:
            data["was"] = before.limit
        if record.kind == "rate":
            data |= {"per_ms": record.per_ms, "burst": record.burst}
        data["pinned"] = record.is_pinned
        self.batch.events.append(Event(type="limit-changed", subject=record.key, data=data))

    def _tell_closed(self) -> None:
        """Report the rates that were open before the batch has closed them."""
        batch, limits = self.batch, self.batch.held.flows.limits
        for key, before_ms in limits.closed.items():
            record = limits.by_key.get(key)
            if record is not None and before_ms <= batch.context.now_ms < record.closed_until_ms:
                data = {"until_ms": record.closed_until_ms}
                batch.events.append(Event(type="limit-closed", subject=key, data=data))

    def _note_full_queues(self) -> None:
        """Report the queues that have refused a submission, unless that is known."""
        batch, told, now_ms = self.batch, self.batch.held.told_full, self.batch.context.now_ms
        full = {one.facts["queue"] for one in batch.outcomes if isinstance(one, QueueFull)}
        for queue in full:
            if now_ms - told.get(queue, 0) >= FULL_AGAIN_MS:
                told[queue] = now_ms
                data = {"max_queued": batch.held.flows.queues.settings_of(queue).max_queued}
                batch.events.append(Event(type="queue-full", subject=queue, data=data))

    # --- queues -----------------------------------------------------------------------------------

    def _change_settings(self, command: ChangeSettings) -> QueueSettings:
        batch = self.batch
        before = batch.held.flows.queues.settings_of(command.queue)
        after = rules.changed_settings(before, command.change)
        if after != before:
            if after.target_wait_ms is None:
                QueueStore(batch.tx).set_target_missed(command.queue, None)
            FlowStore(batch.tx).put_settings(command.queue, after, at_ms=batch.context.now_ms)
            # What runs and waits already counts, too: the next batch loads everything again.
            batch.held.is_outdated = True
        return after

    def _blocked_lanes(self) -> BlockedLanes:
        held, known = self.batch.held, self.batch.lanes.by_number
        by_key = held.flows.limits.by_key
        return BlockedLanes(
            [
                BlockedLane(lane=known[lane], limit=self._state(by_key[key]), keys=keys)
                for lane, key, keys in held.flows.admission.blocked_lanes()
                if lane not in held.windows.by_lane
            ]
        )

    # --- targets ----------------------------------------------------------------------------------

    def _watch_targets(self) -> int:
        """Note each queue that has begun to miss its target, or meets it again."""
        batch, flows = self.batch, self.batch.held.flows
        queues, now_ms = QueueStore(batch.tx), batch.context.now_ms
        changed = 0
        for queue, target_ms in targets(flows.queues.settings):
            is_missed = queues.has_waited(queue, before_ms=now_ms - target_ms)
            if is_missed == (queue in flows.queues.missed):
                continue
            changed += 1
            if is_missed:
                self._note_missed(queue)
                continue
            since_ms = flows.queues.missed.pop(queue)
            queues.set_target_missed(queue, None)
            settings, missed_for_ms = flows.queues.settings_of(queue), max(0, now_ms - since_ms)
            batch.events.append(target_met(queue, settings, missed_for_ms=missed_for_ms))
        return changed

    def _note_late_starts(self) -> None:
        """Note the queues of tasks that have just started, and had waited too long."""
        flows = self.batch.held.flows
        for _, tasks in self.batch.granted:
            for task in tasks:
                queue = task.lane.queue
                settings = flows.queues.settings.get(queue)
                if settings is None or queue in flows.queues.missed:
                    continue
                if is_late(task, settings):
                    self._note_missed(queue)

    def _note_missed(self, queue: str) -> None:
        batch, flows = self.batch, self.batch.held.flows
        flows.queues.missed[queue] = batch.context.now_ms
        QueueStore(batch.tx).set_target_missed(queue, batch.context.now_ms)
        batch.events.append(target_missed(queue, flows.queues.settings_of(queue)))
