"""Webhooks and pushed queues inside a batch: load, reduce the commands, write what has changed."""

from collections import defaultdict
from collections.abc import Sequence
from typing import get_args

from rota.core.outbound import push
from rota.core.outbound.push import PushCommand, PushShown, PushTable
from rota.core.replies import Done
from rota.core.webhooks import commands
from rota.core.webhooks.commands import (
    ReportDeliveries,
    WebhookCommand,
    WebhookShown,
    WebhookTable,
)
from rota.core.webhooks.model import WebhookDelivery
from rota.engine.commit.batch import Batch, Domain
from rota.store.outbound.push import PushStore
from rota.store.outbound.webhooks import WebhookStore


class WebhookDomain(Domain):
    """The webhooks of one batch."""

    COMMANDS = frozenset(get_args(WebhookCommand))

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self._store = WebhookStore(batch.tx)
        self._table = WebhookTable(webhooks={}, deliveries={}, last_seq=batch.state.last_seq)

    def load(self, commands: Sequence[WebhookCommand]) -> None:
        table, reported = self._table, defaultdict[str, set[int]](set)
        table.webhooks = {one.name: one for one in self._store.all()}
        for command in commands:
            if isinstance(command, ReportDeliveries):
                for report in command.reports:
                    reported[report.webhook].add(report.seq)
        for webhook, seqs in reported.items():
            for one in self._store.deliveries(webhook, sorted(seqs)):
                table.deliveries[webhook, one.event.seq] = one

    def reduce(self, command: WebhookCommand) -> WebhookShown | Done:
        return commands.reduce(self._table, command, self.batch.context)

    def write(self) -> None:
        table = self._table
        for name in sorted(table.deleted):
            self._store.delete(name)
        for record in table.changed.values():
            self._store.put(record)
        written: list[WebhookDelivery] = [*table.written.values()]
        self._store.put_deliveries(written)
        self.batch.events += table.events


class PushDomain(Domain):
    """The pushed queues of one batch."""

    COMMANDS = frozenset(get_args(PushCommand))

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self._store = PushStore(batch.tx)
        self._table = PushTable(records={})

    def load(self, commands: Sequence[PushCommand]) -> None:
        if commands:
            self._table.records = self._store.all()

    def reduce(self, command: PushCommand) -> PushShown | Done:
        return push.reduce(self._table, command, self.batch.context.now_ms)

    def write(self) -> None:
        for queue, record in self._table.changed.items():
            if record is None:
                self._store.delete(queue)
            else:
                self._store.put(record)
        self.batch.events += self._table.events
