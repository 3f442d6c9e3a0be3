"""The names that sessions give to tasks, and a worker that reconnects."""

from msgspec.structs import replace

from rota.core.commands import RegisterWorker
from rota.core.decisions import PutWorker
from rota.core.replies import Registered
from rota.core.sessions import key_of, name_of
from rota.core.tasks.model import Lane
from rota.core.workers.model import WorkerState
from tests.core.snapshots import NOW_MS, add_running, add_task, add_worker, reduce, situation

# --- names --------------------------------------------------------------------------------------


def test_a_task_has_the_name_that_its_session_gave_it() -> None:
    task = add_task(situation(), lane=Lane("main", "work"), key=key_of("main", "my: task"))

    assert name_of(task) == "my: task"


def test_a_task_without_such_a_name_has_its_id() -> None:
    task = add_task(situation(), 255, lane=Lane("main", "work"))

    others = [task, *(replace(task, key=key) for key in ("mine", key_of("other", "t")))]

    assert [name_of(one) for one in others] == ["00000000000000ff"] * 3


# --- going on -----------------------------------------------------------------------------------


def test_a_worker_that_goes_on_keeps_its_incarnation_and_what_it_holds() -> None:
    snapshot = situation()
    before = add_worker(
        snapshot, "w", incarnation=7, state=WorkerState.DRAINING, last_heartbeat_ms=0
    )
    add_running(snapshot, 1, worker=before)

    event = RegisterWorker(worker_id="w", node_id="n2", incarnation=7, queues=("a", "b"))
    decisions, reply = reduce(snapshot, event)

    assert isinstance(reply, Registered)
    after = reply.worker
    assert decisions == [PutWorker(after)]
    assert (after.incarnation, after.queues, after.node_id) == (7, ("a", "b"), "n2")
    assert (after.state, after.last_heartbeat_ms) == (WorkerState.DRAINING, NOW_MS)
    assert len(snapshot.leases) == 1


def test_a_worker_that_was_replaced_cannot_go_on() -> None:
    snapshot = situation()
    snapshot.next_incarnation = 9
    before = add_worker(snapshot, "w", incarnation=8)
    add_running(snapshot, 1, worker=before)

    _, reply = reduce(snapshot, RegisterWorker(worker_id="w", node_id="n", incarnation=7))

    assert isinstance(reply, Registered)
    assert reply.worker.incarnation == 9
    assert snapshot.leases == {}


def test_a_worker_that_is_gone_begins_anew() -> None:
    snapshot = situation()
    snapshot.next_incarnation = 9

    _, reply = reduce(snapshot, RegisterWorker(worker_id="w", node_id="n", incarnation=7))

    assert isinstance(reply, Registered)
    assert reply.worker.incarnation == 9
