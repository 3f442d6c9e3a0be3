"""Commands that are held while the store has no leader, for a short time.

Theory of operation. When the leader goes, commands that it has not answered, and new commands, wait
here for the next leader. A command that the old leader may have executed is sent again only if
that is safe. After `HOLD_S` without a leader all held commands are refused, and new ones are
refused at once, until there is a leader.
"""

import asyncio
from collections.abc import Callable

import structlog

from rota.core.commands import (
    Command,
    CompleteJob,
    FailJob,
    ReportLogs,
    RetryTasks,
    SubmitTasks,
)
from rota.core.flows.commands import ConsumeLimit
from rota.core.kv import DeleteValue, PutValue
from rota.core.outbound.push import DropPush, PutPush
from rota.core.schedules.commands import BackfillSchedule, DeleteSchedule, RunSchedule
from rota.core.webhooks.commands import DeleteWebhook, PutWebhook
from rota.core.workflow.commands import (
    AddBranches,
    AddSiblings,
    ForkRun,
    SignalRun,
    StageArtifact,
    StartRun,
    SteerRun,
    SteerScope,
)
from rota.engine.commit.request import Delivery, QueuedCommand
from rota.errors import OutcomeUnknown, Unavailable

log = structlog.get_logger("rota.replicas")

HOLD_S = 2.0  # how long commands wait for a new leader

# They change something each time.
UNREPEATABLE = (
    RetryTasks,
    FailJob,
    CompleteJob,
    PutValue,
    DeleteValue,
    ForkRun,
    StageArtifact,
    SteerRun,
    SteerScope,
    ConsumeLimit,
    RunSchedule,
    BackfillSchedule,
    DeleteSchedule,
    DeleteWebhook,
    DropPush,
    PutPush,
    PutWebhook,
)
NO_LEADER = "no coordinator leads the store now; nothing was changed"
LEADER_LOST = "the coordinator that led the store is gone"


class HeldCommands:
    def __init__(self, deliver: Callable[[Delivery], None]) -> None:
        """`deliver` replies to the callers of commands that are refused."""
        self._deliver = deliver
        self._held: dict[QueuedCommand, bool] = {}  # True: the old leader may have executed it
        self._until_s: float | None = None  # None: not holding
        self._timer: asyncio.TimerHandle | None = None
        self.weight = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def is_holding(self) -> bool:
        return self._until_s is not None and asyncio.get_running_loop().time() < self._until_s

    def begin(self) -> None:
        """Hold commands from now on, because the leader is gone; a second time changes nothing."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            return
        self._until_s = loop.time() + HOLD_S
        self._timer = loop.call_later(HOLD_S, self.refuse_all)

    def add(self, entry: QueuedCommand, *, was_sent: bool = False) -> None:
        self._held[entry] = was_sent
        self.weight += entry.weight

    def release(self) -> list[QueuedCommand]:
        """Return the commands for the new leader; refuse those that must not be repeated."""
        held = self._take()
        again = [
            one for one, was_sent in held.items() if not was_sent or is_repeatable(one.command)
        ]
        unknown = [
            one for one, was_sent in held.items() if was_sent and not is_repeatable(one.command)
        ]
        self._refuse(unknown, OutcomeUnknown(LEADER_LOST))
        return [one for one in again if one.on_reply is not None or not one.future.done()]

    def refuse_all(self) -> None:
        """Refuse everything that is held: no leader came in time, or the coordinator stops."""
        held = self._take()
        if held:
            log.warning("commands_refused_without_leader", commands=len(held))
        self._refuse(
            [one for one, was_sent in held.items() if was_sent], OutcomeUnknown(LEADER_LOST)
        )
        self._refuse(
            [one for one, was_sent in held.items() if not was_sent], Unavailable(NO_LEADER)
        )

    def _take(self) -> dict[QueuedCommand, bool]:
        if self._timer is not None:
            self._timer.cancel()
        held, self._held = self._held, {}
        self._until_s = self._timer = None
        self.weight = 0
        return held

    def _refuse(self, entries: list[QueuedCommand], error: Unavailable) -> None:
        if entries:
            self._deliver(Delivery([(one, error) for one in entries]))


def is_repeatable(command: Command) -> bool:
    """Whether a command that the old leader may have executed can be executed again.

    A repeatable command then changes nothing that matters: it names what it changes and the state
    that it wants, or its key, fence or sequence number shows that it was executed. A lease call may
    grant other tasks the second time; those that were granted first return to their queue, because
    their worker does not list them as running.
    """
    match command:
        case SubmitTasks():
            return all(task.key is not None for task in command.tasks)
        case StartRun() | SignalRun() | AddBranches() | AddSiblings():
            return command.key is not None
        case ReportLogs():
            return all(item.first or not item.lines for item in command.items)
        case _:
            return not isinstance(command, UNREPEATABLE)
