"""Limits and settings of queues inside a batch, and the writes of all changed limits."""

from typing import Any, assert_never, get_args

from rota.core import limits as core_limits
from rota.core.flows import commands as rules
from rota.core.flows.commands import (
    ChangeSettings,
    CloseLimit,
    ConsumeLimit,
    DropLimit,
    FlowCommand,
    LimitState,
    LimitStates,
    LookAtLimits,
    PutLimit,
)
from rota.core.flows.model import LimitRecord
from rota.core.flows.queue_settings import DEFAULT_SETTINGS, QueueSettings
from rota.engine.commit.batch import Domain
from rota.engine.commit.request import earlier
from rota.errors import LimitNotFound, TooMany
from rota.store.tasks.flows import FlowStore


class FlowDomain(Domain):
    COMMANDS = frozenset(get_args(FlowCommand))
    CONCERNS_ALL = True  # any batch may start or end tasks that have limits

    def load(self, commands: Any) -> None:
        """Open the rates that are due: the dispatcher of this batch may use them."""
        flows = self.batch.held.flows
        if flows.is_used or commands:
            flows.open_due(self.batch.context.now_ms)

    def reduce(self, command: FlowCommand) -> LimitState | LimitStates | QueueSettings:
        now_ms = self.batch.context.now_ms
        match command:
            case PutLimit():
                return self._put(command)
            case DropLimit():
                return self._drop(command.key)
            case ConsumeLimit():
                return self._consume(command)
            case CloseLimit():
                record = rules.close(self._known(command.key), command, now_ms=now_ms)
                self._use(record)
                return self._state(record)
            case LookAtLimits():
                by_key = self.batch.held.flows.limits.by_key
                return LimitStates(
                    [self._state(by_key[key]) for key in command.keys if key in by_key]
                )
            case ChangeSettings():
                return self._change_settings(command)
            case _:
                assert_never(command)

    def write(self) -> None:
        """Write the limits that any domain of the batch has changed."""
        flows = self.batch.held.flows
        if flows.is_used or flows.limits.dropped:
            flows.limits.flush(self.batch.tx)
            delivery, opens_ms = self.batch.delivery, flows.openings.next_ms()
            delivery.next_moment_ms = earlier(delivery.next_moment_ms, opens_ms)

    # --- limits -----------------------------------------------------------------------------------

    def _put(self, command: PutLimit) -> LimitState:
        held = self.batch.held.flows.limits
        before = held.by_key.get(command.key)
        if before is None and not held.has_room_for_key():
            most = core_limits.MAX_LIMIT_KEYS
            raise TooMany(f"{most} limits are known, and no more may be", limit=most)
        record = rules.put_limit(before, command, now_ms=self.batch.context.now_ms)
        self._use(record)
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
        record = rules.unpin(self._known(key), now_ms=now_ms)
        if flows.is_named(key):
            self._use(record)
            return LimitStates([self._state(record)])
        flows.limits.drop(key)
        return LimitStates([])

    def _known(self, key: str) -> LimitRecord:
        record = self.batch.held.flows.limits.by_key.get(key)
        if record is None:
            raise LimitNotFound(key)
        return record

    def _use(self, record: LimitRecord) -> None:
        flows = self.batch.held.flows
        flows.limits.put(record)
        flows.note_put(record.key)
        flows.wake(record.key, now_ms=self.batch.context.now_ms)

    def _state(self, record: LimitRecord) -> LimitState:
        held = self.batch.held.flows.limits
        return LimitState(
            record=record,
            running=held.running.get(record.key, 0),
            waiting=held.waiting.get(record.key, 0),
            opens_at_ms=held.opens_at_ms(record.key, now_ms=self.batch.context.now_ms),
        )

    # --- queues -----------------------------------------------------------------------------------

    def _change_settings(self, command: ChangeSettings) -> QueueSettings:
        batch = self.batch
        before = batch.held.flows.settings.get(command.queue, DEFAULT_SETTINGS)
        after = rules.changed_settings(before, command.change)
        if after != before:
            FlowStore(batch.tx).put_settings(command.queue, after, at_ms=batch.context.now_ms)
            # What runs and waits already counts, too: the next batch loads everything again.
            batch.held.is_outdated = True
        return after
