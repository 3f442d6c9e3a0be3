"""Commands of operators, and what follows when other things happen in between."""

from rota.core.commands import CancelTasks, RetryTasks
from tests.engine.running import Engine


async def test_a_task_that_lives_again_is_not_cancelled_a_second_time(engine: Engine) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit()
    await engine.lease(worker)
    await engine.execute(CancelTasks((task_id,)))

    await engine.execute(RetryTasks((task_id,)))
    (again,) = await engine.lease(worker)
    beat = await engine.beat(worker, [task_id])

    assert again.fence == 2
    assert beat.cancel == ()
    assert beat.lost == ()


async def test_nobody_is_made_to_wait_once_a_stop_was_asked_for(engine: Engine) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit("unserved", requires=("gpu",))
    engine.coordinator.begin_stop()

    leases = await engine.lease(worker, wait_ms=600_000)
    await engine.coordinator.wait_for_end(task_id, wait_ms=600_000)

    assert leases == []
