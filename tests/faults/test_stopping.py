"""Does a stop that was asked for come soon, whoever still calls?"""

import asyncio
from pathlib import Path

from rota.core.events import LeaseWork, RegisterWorker, SubmitTasks
from rota.core.replies import Granted, Registered, Submitted
from rota.core.tasks import NewTask
from rota.node import Node
from rota.settings import Settings

LONG_MS = 60_000
SOON_S = 10


async def test_a_call_that_comes_once_a_stop_was_asked_for_does_not_wait(tmp_path: Path) -> None:
    node = Node(Settings(store=f"sqlite:///{tmp_path}/rota.db"), inline=True)
    await node.start()
    coordinator = node.coordinator
    registered = await coordinator.handle(RegisterWorker(worker_id="w", node_id="here"))
    assert isinstance(registered, Registered)
    submitted = await coordinator.handle(SubmitTasks([NewTask(name="resize", delay_ms=LONG_MS)]))
    assert isinstance(submitted, Submitted)

    node.ask_to_stop()

    wish = LeaseWork(worker_id="w", incarnation=registered.worker.incarnation, most=1)
    async with asyncio.timeout(SOON_S):
        assert await coordinator.lease(wish, wait_ms=LONG_MS) == Granted([])
        await coordinator.wait_finished(submitted.items[0].id, wait_ms=LONG_MS)
    await node.stop()
