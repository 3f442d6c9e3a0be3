import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rota.core.commands import SubmitTasks, TaskCommand
from rota.core.decisions import Decision
from rota.core.replies import Submitted
from rota.core.tasks.model import FINISHED
from rota.errors import RotaError
from tests.core.model import Answer, Model
from tests.core.random_commands import HAPPENINGS, Happening, event_of
from tests.core.snapshots import (
    NOW_MS,
    add_running,
    add_worker,
    done,
    new_task,
    reduce,
    report,
    situation,
)

BATCHES = st.lists(HAPPENINGS, min_size=1, max_size=6)


def events_of(model: Model, happenings: list[Happening]) -> list[TaskCommand]:
    """What callers send at one moment, each knowing the state before it."""
    events = [event_of(model, happening) for happening in happenings]
    return [event for event in events if event is not None]


class AnyLife(RuleBasedStateMachine):
    """Anything may happen, in any order and any batch; the rules of the model must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(NOW_MS)
        for number in range(2):
            happening = ("register", number, number, 0)
            self.model.handle(events_of(self.model, [happening]))

    @rule(happenings=BATCHES)
    def handle(self, happenings: list[Happening]) -> None:
        finished = {task.id: task for task in self.model.tasks.values() if task.state in FINISHED}
        fences = {task.id: task.fence for task in self.model.tasks.values()}

        answers = self.model.handle(events_of(self.model, happenings))

        for task in self.model.tasks.values():
            assert task.fence >= fences.get(task.id, 0)
        retried = any(kind == "retry" for kind, *_ in happenings)
        for task_id, before in finished.items():
            assert self.model.tasks[task_id] == before or retried
        for answer in answers:
            assert isinstance(answer, RotaError) or answer is not None

    @rule()
    def deal(self) -> None:
        self.model.deal()

    @rule(by_ms=st.sampled_from([1, 20, 600, 1_000, 16_000, -5_000]))
    def turn_the_clock(self, by_ms: int) -> None:
        self.model.now_ms += by_ms

    @invariant()
    def the_rules_hold(self) -> None:
        self.model.check()


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(stateful_step_count=30)


def said(answer: Answer) -> bytes:
    """An answer as it can be compared; an error by its code and its words."""
    if isinstance(answer, RotaError):
        return msgspec.json.encode([answer.code, answer.detail])
    if isinstance(answer, Submitted):
        # A known key answers with its task as it was when the batch began.
        return msgspec.json.encode([item.id for item in answer.items])
    return msgspec.json.encode(answer, enc_hook=lambda error: [error.code, error.detail])


@given(st.lists(st.tuples(BATCHES, st.integers(0, 900)), max_size=8))
def test_a_batch_decides_what_its_events_would_decide_one_by_one(
    steps: list[tuple[list[Happening], int]],
) -> None:
    together = Model(NOW_MS)
    together.handle(events_of(together, [("register", 0, 2, 0), ("submit", 0, 1, 5)]))

    for happenings, pause_ms in steps:
        events = events_of(together, happenings)
        alone = together.copy()
        at_once = together.handle(events)
        in_turn = [answer for event in events for answer in alone.handle([event])]

        assert together.comparable() == alone.comparable()
        assert [said(answer) for answer in at_once] == [said(answer) for answer in in_turn]
        together.deal()
        together.now_ms += pause_ms


def test_a_refused_event_leaves_the_snapshot_as_it_was() -> None:
    snapshot = situation()
    worker = add_worker(snapshot, incarnation=2)
    lease = add_running(snapshot, worker=worker)
    zombie = msgspec.structs.replace(report(worker, done(lease)), incarnation=1)

    try:
        reduce(snapshot, zombie)
    except RotaError as error:
        refusal: RotaError | None = error
    else:
        refusal = None

    assert refusal is not None
    assert snapshot.leases == {lease.id: lease}
    assert snapshot.finished == {}


def test_decisions_can_be_written_down_and_read_again() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker)
    submission = SubmitTasks([new_task(key="k", labels={"a": "b"}), new_task(delay_ms=5)])

    added, _ = reduce(snapshot, submission)
    ended, _ = reduce(snapshot, report(worker, done(lease, ok=False)))
    before = [*added, *ended]

    assert msgspec.json.decode(msgspec.json.encode(before), type=list[Decision]) == before
