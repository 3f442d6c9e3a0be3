"""Commands that are held while there is no leader, and which of them are sent again."""

import asyncio
from collections.abc import Callable
from typing import Any, get_args

import pytest

from rota.core.commands import AttemptLines, CancelTasks, Command, ReportLogs, SubmitTasks
from rota.core.ids import TaskId
from rota.core.tasks.logs import LogLine
from rota.core.tasks.model import NewTask
from rota.core.workflow.commands import AddBranches, AddSiblings, SignalRun, StartRun
from rota.engine.commit.request import Delivery, QueuedCommand
from rota.engine.replicas import held
from rota.engine.replicas.held import LEADER_LOST, NO_LEADER, HeldCommands, is_repeatable
from rota.errors import OutcomeUnknown, Unavailable
from tests.core.test_commands import EXAMPLES

# Why each kind of command may be executed a second time; None: it may not.
WHY: dict[str, str | None] = {
    "SubmitTasks": "only with keys: the key finds the first task",
    "StartRun": "only with a key: the key finds the first run",
    "CancelTasks": "the tasks are cancelled already",
    "PauseQueue": "it names the state",
    "RegisterWorker": "the newer incarnation replaces the one that no worker knows",
    "BeatWorker": "it is heard once more",
    "LeaseWork": "tasks that the worker does not list as running return to their queue",
    "ReportResults": "the fence shows that the result is there",
    "ReportProgress": "it names the state",
    "ReportLogs": "only with the numbers of the lines: they show which are there",
    "ReturnLeases": "the fence shows that the lease is over",
    "LeaveWorker": "it has left",
    "SetWorkerState": "it names the state",
    "StartJob": "its holder holds it already",
    "AddToken": "it names the token",
    "RevokeToken": "it is revoked",
    "QueueDueTasks": "a duty",
    "ExpireAttempts": "a duty",
    "SweepWorkers": "a duty",
    "TakeInbox": "a duty",
    "PruneHistory": "a duty",
    "PutWorkflow": "the same definition is the same version",
    "PutCode": "the same code is the same version",
    "LookAtRun": "it changes nothing",
    "LookAtOperations": "it changes nothing",
    "LookAtStream": "it changes nothing",
    "LookAtReply": "it changes nothing",
    "ReportOperations": "the number of the entries before shows that they are there",
    "FireRunTimers": "a duty",
    "AdvanceRuns": "a duty",
    "PruneRuns": "a duty",
    "CheckArtifact": "it changes nothing",
    "RegisterMember": "its incarnation is known",
    "BeatMember": "its sequence number shows that it was heard",
    "LeaveMember": "it has left",
    "DrainMember": "it names the state",
    "ConfigureService": "it names the state",
    "SweepServices": "a duty",
    "SaveCheckpoint": "it names the state, under an epoch",
    "SweepValues": "a duty",
    "AcquireLock": "its owner has the lock, or its place in the queue",
    "RenewLock": "the fence shows whose lock it is",
    "ReleaseLock": "the fence shows that the lock is another one",
    "LeaveLockQueue": "it has left",
    "SweepLocks": "a duty",
    "ClearNotifications": "they are deleted",
    "PruneEvents": "a duty",
    "KeepMinutes": "it names the minutes",
    "BeatReplica": "it is heard once more",
    "PutLimit": "it names the state",
    "DropLimit": "it names the state",
    "CloseLimit": "it is closed for a little longer",
    "LookAtLimits": "it changes nothing",
    "LookAtTenants": "it changes nothing",
    "LookAtBlocked": "it changes nothing",
    "RecountLimits": "it changes nothing",
    "WatchTargets": "a duty",
    "ChangeSettings": "it names the state",
    "ConsumeLimit": None,  # it would be counted twice
    "PutSchedule": "it names the state",
    "SyncSchedules": "it names the state",
    "PauseSchedule": "it names the state",
    "ResumeSchedule": "it names the state",
    "FireSchedules": "a duty",
    "RunSchedule": None,
    "BackfillSchedule": None,  # tasks of the first may be pruned in between
    "DeleteSchedule": None,  # the second would say that there was none
    "AcknowledgeTasks": "it names the state",
    "RecordWaits": "a duty",
    "NoteStuckQueues": "a duty",
    "PutWebhook": None,  # only the first reply has the new secret
    "DeleteWebhook": None,  # the second would say that there was none
    "QueueDeliveries": "the cursor shows that they are queued",
    "ReportDeliveries": "the number of the attempt shows that it is there",
    "PutPush": None,  # only the first reply has the new secret
    "DropPush": None,  # the second would say that there was none
    "ClosePush": "it names the state",
    "RetryTasks": None,  # a task may have finished again in between
    "CompleteJob": None,
    "FailJob": None,
    "ForkRun": None,
    "SteerRun": None,
    "SteerScope": None,
    "AddBranches": "its key is known",
    "AddSiblings": "its key is known",
    "SignalRun": "its key is known",
    "StageArtifact": None,
    "PutValue": None,  # another caller may have put a newer value in between
    "DeleteValue": None,  # the second would say that there was none
}
BY_CONTENT = (SubmitTasks, StartRun, SignalRun, AddBranches, AddSiblings, ReportLogs)


LINE = LogLine(1, "info", "shop", "paid")


def logged(*items: AttemptLines) -> ReportLogs:
    return ReportLogs(worker_id="w1", incarnation=1, items=[*items])


def test_every_kind_of_command_has_a_reason() -> None:
    assert WHY.keys() == {kind.__name__ for kind in get_args(Command)}


@pytest.mark.parametrize(
    "command",
    [one for one in EXAMPLES if not isinstance(one, BY_CONTENT)],
    ids=lambda command: type(command).__name__,
)
def test_a_command_is_repeatable_if_it_changes_nothing_the_second_time(command: Command) -> None:
    assert is_repeatable(command) == (WHY[type(command).__name__] is not None)


@pytest.mark.parametrize(
    ("command", "is_repeated"),
    [
        (SubmitTasks([]), True),
        (SubmitTasks([NewTask(name="a", key="k")]), True),
        (SubmitTasks([NewTask(name="a")]), False),
        (SubmitTasks([NewTask(name="a", key="k"), NewTask(name="b")]), False),
        (logged(AttemptLines(TaskId(1), 1, [LINE], 1), AttemptLines(TaskId(1), 1)), True),
        (logged(AttemptLines(TaskId(1), 1, [LINE], 1), AttemptLines(TaskId(2), 1, [LINE])), False),
        (StartRun(workflow="w", key="k"), True),
        (StartRun(workflow="w"), False),
        (SignalRun(run_id=1, name="go", key="k"), True),
        (SignalRun(run_id=1, name="go"), False),
        (AddBranches(run_id=1, scope=1, items=[1], key="k"), True),
        (AddBranches(run_id=1, scope=1, items=[1]), False),
        (AddSiblings(task_id=1, fence=1, items=[1], key="k"), True),
        (AddSiblings(task_id=1, fence=1, items=[1]), False),
    ],
)
def test_a_command_that_may_have_a_key_is_repeatable_by_its_content(
    command: Command, *, is_repeated: bool
) -> None:
    assert is_repeatable(command) == is_repeated


# --- holding --------------------------------------------------------------------------------------


class Holding:
    def __init__(self) -> None:
        self.refused: list[tuple[QueuedCommand, str]] = []
        self.has_refused = asyncio.Event()
        self.held = HeldCommands(self._deliver)

    def _deliver(self, delivery: Delivery) -> None:
        for entry, outcome in delivery.answers:
            assert isinstance(outcome, Unavailable)
            self.refused.append((entry, outcome.detail))
            self.has_refused.set()


def entry(command: Command, on_reply: Callable[[Any], None] | None = None) -> QueuedCommand:
    return QueuedCommand(command, asyncio.get_running_loop().create_future(), on_reply=on_reply)


def keyless(name: str = "a") -> QueuedCommand:
    return entry(SubmitTasks([NewTask(name=name)]))


async def test_commands_are_released_in_the_order_they_came() -> None:
    holding = Holding()
    holding.held.begin()
    entries = [keyless(), entry(CancelTasks((1,))), keyless()]  # type: ignore[arg-type]
    for number, one in enumerate(entries):
        holding.held.add(one, was_sent=number == 1)
    assert holding.held.weight == 3

    assert holding.held.release() == entries
    assert (holding.held.weight, holding.held.is_holding) == (0, False)
    assert not holding.refused


async def test_a_command_that_was_sent_is_not_released_unless_it_is_repeatable() -> None:
    holding = Holding()
    holding.held.begin()
    sent, unsent = keyless(), keyless()
    holding.held.add(sent, was_sent=True)
    holding.held.add(unsent)

    assert holding.held.release() == [unsent]
    assert holding.refused == [(sent, OutcomeUnknown(LEADER_LOST).detail)]


async def test_a_command_whose_caller_has_gone_is_not_released() -> None:
    holding = Holding()
    holding.held.begin()
    gone, silent = keyless(), entry(SubmitTasks([]), on_reply=lambda _: None)
    gone.future.cancel()
    silent.future.cancel()  # one future serves all commands with a callback
    holding.held.add(gone)
    holding.held.add(silent)

    assert holding.held.release() == [silent]


async def test_all_commands_are_refused_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held, "HOLD_S", 0.01)
    holding = Holding()
    holding.held.begin()
    sent, unsent = keyless(), keyless()
    holding.held.add(sent, was_sent=True)
    holding.held.add(unsent)
    async with asyncio.timeout(30):
        await holding.has_refused.wait()

    assert holding.refused == [(sent, OutcomeUnknown(LEADER_LOST).detail), (unsent, NO_LEADER)]
    assert not holding.held.is_holding
    assert holding.held.release() == []


async def test_a_second_loss_of_the_leader_begins_the_time_anew() -> None:
    holding = Holding()
    holding.held.begin()
    holding.held.add(keyless())
    holding.held.begin()

    assert holding.held.is_holding
    assert len(holding.held.release()) == 1
