"""Lease calls between batches: which get their reply, which wait for work, and which remain.

A lease call that finds no work joins the waitlist. A subscription that gets less than it asked for
goes on waiting for the remainder.
"""

from collections.abc import Sequence
from typing import cast

import msgspec

from rota.core.commands import LeaseWork
from rota.core.replies import Granted
from rota.engine.commit.batch import Batch
from rota.engine.commit.request import Outcome, QueuedCommand
from rota.engine.dispatch.waitlist import Waitlist, serves

MOST_UNFILLED = 10_000  # workers remembered as granted less than they asked for

Answer = tuple[QueuedCommand, Outcome | Exception]


class LeaseCalls:
    """The lease calls of one coordinator. They belong to the writer."""

    def __init__(self) -> None:
        self.waitlist: Waitlist[QueuedCommand] = Waitlist()
        self._unfilled: set[str] = set()  # workers last granted less than they asked for

    def has_little_for(self, worker_id: str) -> bool:
        """Whether the worker's last grant was less than it asked for, so its next call is cheap."""
        return worker_id in self._unfilled

    def answers(self, entries: Sequence[QueuedCommand], batch: Batch) -> list[Answer]:
        """Return the replies of a committed batch, to its commands and to calls of the waitlist."""
        answers: list[Answer] = []
        # Calls of the waitlist come first: their workers are idle, and there is work for them.
        served = cast("list[tuple[QueuedCommand, Outcome]]", batch.served)
        for entry, _ in served:
            self.waitlist.drop(entry)
        for entry, outcome in [*served, *zip(entries, batch.outcomes, strict=True)]:
            if not isinstance(outcome, Granted) or not self._waits(entry, outcome, batch):
                answers.append((entry, outcome))
        return answers

    def _waits(self, entry: QueuedCommand, granted: Granted, batch: Batch) -> bool:
        """Let a call wait that was granted nothing, or the remainder of a subscription."""
        command = entry.command
        assert isinstance(command, LeaseWork)
        worker, count = batch.snapshot.workers.get(command.worker_id), len(granted.leases)
        self._note_grant(command, count)
        if entry.can_wait and not count:
            assert worker is not None
            entry.is_waiting = True
            self.waitlist.add(entry, worker)
            return True
        left = command.most - count
        if entry.is_subscription and count and left > 0:
            assert worker is not None
            # At once, if no work is left: entering the remainder again would cost a batch.
            if not any(serves(worker, lane) for lane in batch.open_lanes):
                remainder = QueuedCommand(
                    msgspec.structs.replace(command, most=left),
                    entry.future.get_loop().create_future(),
                    can_wait=True,
                    is_subscription=True,
                )
                remainder.is_waiting = True
                entry.remainder = remainder
                self.waitlist.add(remainder, worker)
        return False

    def _note_grant(self, command: LeaseWork, count: int) -> None:
        if count >= command.most:
            self._unfilled.discard(command.worker_id)  # an unknown amount of work may be left
        elif len(self._unfilled) < MOST_UNFILLED:
            self._unfilled.add(command.worker_id)
