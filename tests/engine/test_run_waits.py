"""What runs wait for, as it is recorded for lists: approvals, signals, branches."""

import pytest

from rota.core.ids import to_text
from rota.core.workflow.commands import RecordWaits
from rota.core.workflow.functions.model import ApprovalRequest, EventRequest
from rota.core.workflow.waits import ANSWERED_KINDS, StoredWait, WaitPlace
from rota.errors import Unavailable
from rota.store.database import Transaction
from tests.engine.flows import Failure, Flows
from tests.engine.functions import Functions, asked, mapped, nap
from tests.engine.graphs import CHILD, FAN, NAP, PARENT
from tests.engine.running import Engine

ASK = """
name: ask
initial_node: ship
nodes:
  ship: {approval: {title: "Ship order 17?", timeout_ms: 60000}}
  paid: {wait_for: {event: paid}}
transitions: [{from: ship, to: paid}]
"""
# A join that waits for an approval in each branch.
EACH = """
name: each
initial_node: begin
nodes: {begin: {}, check: {approval: true}, end: {}}
transitions:
  - {id: fan, from: begin, to: check, spawn_count: input.count}
  - {from: check, to: end, synchronization: {joins_transition: fan, merge: {target: output.all}}}
"""
# Branches that wait for an approval, a signal and a worker.
BESIDE = """
name: beside
initial_node: begin
nodes:
  begin: {}
  sign: {approval: {title: "May it go out?"}}
  paid: {wait_for: {event: paid}}
  work: {task: work}
transitions:
  - {from: begin, to: sign, sibling_group: all}
  - {from: begin, to: paid, sibling_group: all}
  - {from: begin, to: work, sibling_group: all}
"""
# An approval beside a task that fails the run.
FAILS = """
name: fails
initial_node: begin
nodes:
  begin: {}
  sign: {approval: {title: "Sign?"}}
  work: {task: work, retry: {max_attempts: 1}}
transitions: [{from: begin, to: sign}, {from: begin, to: work}]
"""


@pytest.fixture
def flows(engine: Engine) -> Flows:
    return Flows(engine)


@pytest.fixture
def functions(engine: Engine) -> Functions:
    return Functions(engine)


async def waits(flows: Flows, *, limit: int = 100) -> list[StoredWait]:
    found = await flows.engine.coordinator.queries.waits.page(
        ANSWERED_KINDS, after=None, limit=limit
    )
    return found.waits


async def texts(flows: Flows, *run_ids: int) -> list[str | None]:
    found = await flows.engine.coordinator.queries.waits.standings(run_ids)
    return [found[one].text if one in found else None for one in run_ids]


async def test_an_approval_is_listed_with_its_title_from_its_asking_to_its_answer(
    flows: Flows,
) -> None:
    run_id = await flows.start(ASK)
    now_ms = flows.engine.clock.now_ms()

    (asking,) = await waits(flows)
    await flows.signal(run_id, "ship", {"approved": True})
    (waiting,) = await waits(flows)
    await flows.signal(run_id, "paid")

    assert (asking.kind, asking.name, asking.title) == ("approval", "ship", "Ship order 17?")
    assert (asking.run, asking.since_ms, asking.due_at_ms) == (run_id, now_ms, now_ms + 60_000)
    assert (waiting.kind, waiting.name, waiting.place) == ("signal", "paid", "paid")
    assert await waits(flows) == []


async def test_approvals_come_before_signals_and_the_oldest_of_each_first(flows: Flows) -> None:
    first = await flows.start(ASK)
    await flows.signal(first, "ship", {"approved": True})
    runs = []
    for _ in range(3):
        await flows.engine.turn(1_000)
        runs.append((await flows.begin("ask")).record.id)

    found = await waits(flows)

    assert [(one.kind, one.run) for one in found] == [
        *(("approval", one) for one in runs),
        ("signal", first),
    ]


async def test_pages_of_waits_follow_each_other_without_a_gap(flows: Flows) -> None:
    first = await flows.start(ASK)
    await flows.signal(first, "ship", {"approved": True})
    for _ in range(4):
        await flows.begin("ask")
    queries = flows.engine.coordinator.queries.waits
    everything = await waits(flows)

    seen: list[StoredWait] = []
    after = None
    while page := (await queries.page(ANSWERED_KINDS, after=after, limit=2)).waits:
        seen += page
        last = page[-1]
        after = (last.kind, WaitPlace(last.since_ms, last.run, last.number))

    assert len(everything) == 5
    assert seen == everything


async def test_a_function_that_asks_is_listed(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    form = {"type": "object"}
    approval = asked("ship#1", "approval", ApprovalRequest(title="x" * 1_000, form=form))
    signal = asked("wait#1", "event", EventRequest(name="paid", timeout_ms=5_000))
    await functions.stop(worker, task, approval, signal, waits=[["ship#1", "wait#1"]])

    asking, waiting = await waits(functions)
    await functions.answer(run_id, "ship", {"approved": True})
    await functions.answer(run_id, "paid", 1)

    assert (asking.name, asking.title, asking.has_form) == ("ship", "x" * 500, True)
    assert (waiting.name, waiting.place) == ("paid", "wait#1")
    assert waiting.due_at_ms == waiting.since_ms + 5_000
    assert await waits(functions) == []


@pytest.mark.parametrize("action", ["cancel", "fail"])
async def test_a_run_that_ends_waits_for_nothing(flows: Flows, action: str) -> None:
    run_id = await flows.start(FAILS)
    worker = await flows.engine.register()
    assert len(await waits(flows)) == 1

    if action == "cancel":
        await flows.steer(run_id, "cancel")
    else:
        await flows.work(worker, {"work": _refuse})

    assert await waits(flows) == []


def _refuse(_payload: object) -> None:
    raise Failure


async def test_a_retried_run_asks_again(flows: Flows) -> None:
    run_id = await flows.start(FAILS)
    worker = await flows.engine.register()
    await flows.work(worker, {"work": _refuse})
    assert await waits(flows) == []

    await flows.steer(run_id, "retry")

    (asking,) = await waits(flows)
    assert (asking.run, asking.title) == (run_id, "Sign?")


async def test_a_retried_fan_out_is_counted_again(flows: Flows) -> None:
    fragile = FAN.replace("{task: work,", "{task: work, retry: {max_attempts: 1},")
    run_id = await flows.start(fragile, {"count": 3})
    worker = await flows.engine.register()
    await flows.work(worker, {"work": _refuse})
    assert await texts(flows, run_id) == [None]

    await flows.steer(run_id, "retry")

    assert await texts(flows, run_id) == ["0 of 3 branches of 'fan' running"]


async def test_a_rolled_back_batch_records_nothing(flows: Flows) -> None:
    await flows.put(ASK)
    flows.engine.database.commit_problem = OSError("the disk is full")
    with pytest.raises(Unavailable):
        await flows.begin("ask")
    flows.engine.database.commit_problem = None

    assert await waits(flows) == []

    await flows.begin("ask")
    assert len(await waits(flows)) == 1


async def test_what_runs_wait_for_is_recorded_of_runs_from_before(flows: Flows) -> None:
    run_id = await flows.start(ASK)
    fan = await flows.start(EACH, {"count": 2})
    before = await waits(flows)

    flows.engine.database.write(lambda tx: _forget(tx, [run_id, fan]))
    flows.cache.runs.clear()
    assert await flows.engine.coordinator.queries.waits.has_unrecorded()

    await flows.command(RecordWaits())

    assert await waits(flows) == before
    assert not await flows.engine.coordinator.queries.waits.has_unrecorded()
    await flows.steer(run_id, "cancel")
    await flows.steer(fan, "cancel")
    assert await waits(flows) == []


def _forget(tx: Transaction, run_ids: list[int]) -> None:
    """Make runs look like those of a store of the version before."""
    tx.execute("waits.drop_of_runs", runs=run_ids)
    tx.execute("waits.mark_recorded", runs=run_ids, recorded=None)


async def test_a_line_says_what_a_run_waits_for(flows: Flows) -> None:
    ask = await flows.start(ASK)
    each = await flows.start(EACH, {"count": 3})
    fan = await flows.start(FAN, {"count": 20})
    nap_id = await flows.start(NAP)
    await flows.put(CHILD)
    parent = await flows.start(PARENT)
    worker = await flows.engine.register()
    await flows.engine.lease(worker, 3)

    found = await texts(flows, ask, each, fan, nap_id, parent)

    assert found == [
        "approval: Ship order 17?",
        "approval: check and 2 more, 0 of 3 branches of 'fan' running",
        "3 of 20 branches of 'fan' running",
        "sleeping",
        "3 of 3 branches of 'children' running",
    ]
    await flows.signal(ask, "ship", {"approved": True})
    assert await texts(flows, ask) == ["signal 'paid'"]
    await flows.signal(ask, "paid")
    assert await texts(flows, ask) == [None]


async def test_a_signal_is_not_hidden_by_the_branches_that_wait_for_it(flows: Flows) -> None:
    run_id = await flows.start(BESIDE)

    assert await texts(flows, run_id) == ["approval: May it go out?, signal 'paid'"]


async def test_a_line_says_what_a_function_waits_for(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()

    queued = await texts(functions, run_id)
    task = await functions.resumed(worker)
    running = await texts(functions, run_id)
    items = mapped("resize#1", [1, 2, 3], max_parallel=2)
    await functions.stop(worker, task, items, waits=[["resize#1"]])
    mapping = await texts(functions, run_id)

    assert queued == ["its function is queued"]
    assert running == ["its function is running"]
    assert mapping == ["0 of 3 branches of 'work' running"]


async def test_a_sleeping_function_says_until_when(functions: Functions) -> None:
    worker = await functions.engine.register()
    run_id = await functions.start_code()
    task = await functions.resumed(worker)
    until_ms = functions.engine.clock.now_ms() + 60_000
    await functions.stop(worker, task, nap("sleep#1", until_ms), waits=[["sleep#1"]])

    found = await functions.engine.coordinator.queries.waits.standings([run_id])

    assert (found[run_id].text, found[run_id].until_ms) == ("sleeping", until_ms)


async def test_a_child_run_knows_the_workflow_of_its_parent(flows: Flows) -> None:
    await flows.put(ASK)
    parent = await flows.start(
        "{name: outer, initial_node: n, nodes: {n: {workflow: ask}}}",
    )

    found = await flows.engine.coordinator.queries.waits.page(ANSWERED_KINDS, after=None, limit=9)

    (asking,) = found.waits
    assert found.names[asking.run].parent_run == parent
    assert found.names[parent].workflow == "outer"
    assert await texts(flows, parent) == ["child run of 'ask'"], to_text(parent)
