"""A coordinator that is asked to stop stops soon, also while clients call."""

import asyncio
from pathlib import Path

from rota.core.commands import LeaseWork, RegisterWorker, SubmitTasks
from rota.core.replies import Granted, Registered, Submitted
from rota.core.tasks.model import NewTask
from rota.node import Node
from rota.settings import Settings

LONG_MS = 60_000
SOON_S = 10


async def test_a_call_that_comes_once_a_stop_was_asked_for_does_not_wait(tmp_path: Path) -> None:
    node = Node(Settings(store=f"sqlite:///{tmp_path}/rota.db"), inline=True)
    await node.start()
    coordinator = node.coordinator
    registered = await coordinator.execute(RegisterWorker(worker_id="w", node_id="here"))
    assert isinstance(registered, Registered)
    submitted = await coordinator.execute(SubmitTasks([NewTask(name="resize", delay_ms=LONG_MS)]))
    assert isinstance(submitted, Submitted)

    node.ask_to_stop()

    incarnation = registered.worker.incarnation
    wish = LeaseWork(worker_id="w", incarnation=incarnation, most=1, wait_ms=LONG_MS)
    async with asyncio.timeout(SOON_S):
        assert await coordinator.execute(wish) == Granted([])
        await coordinator.wait_for_end(submitted.items[0].id, wait_ms=LONG_MS)
    await node.stop()
