from hypothesis import given
from hypothesis import strategies as st

from rota.core.ids import TaskId
from rota.core.tasks.model import (
    FINISHED,
    TASK_TRANSITIONS,
    EndedAttempt,
    Ending,
    Lane,
    TaskOptions,
    TaskRecord,
    TaskState,
)
from rota.gateways.http.views.tasks import events_of


@st.composite
def tasks(draw: st.DrawFn) -> TaskRecord:
    """A task with any log that the rules can leave behind, in any state that may follow it."""
    log: list[EndedAttempt] = []
    at_ms = 1_000
    for fence in range(1, draw(st.integers(0, 4)) + 1):
        next_state = draw(
            st.sampled_from([TaskState.QUEUED, TaskState.SCHEDULED, TaskState.FAILED])
        )
        at_ms += draw(st.integers(0, 10))
        log.append(
            EndedAttempt(
                attempt=fence,
                fence=fence,
                ending=draw(st.sampled_from(Ending)),
                started_at_ms=at_ms,
                ended_at_ms=at_ms + draw(st.integers(0, 10)),
                next_state=next_state,
            )
        )
        at_ms = log[-1].ended_at_ms
    state = draw(st.sampled_from(TaskState))
    if state is TaskState.SCHEDULED and (not log or log[-1].next_state is not TaskState.SCHEDULED):
        state = TaskState.QUEUED
    ran = state in {TaskState.RUNNING, TaskState.SUCCEEDED} or draw(st.booleans())
    return TaskRecord(
        id=TaskId(1),
        lane=Lane("default", "work"),
        state=state,
        options=TaskOptions(delay_ms=draw(st.sampled_from([None, 5]))),
        created_at_ms=1_000,
        fence=len(log) + (1 if ran and state not in {TaskState.QUEUED, TaskState.SCHEDULED} else 0),
        started_at_ms=at_ms,
        finished_at_ms=at_ms + 1 if state in FINISHED else None,
        log=tuple(log),
    )


@given(tasks())
def test_events_follow_the_state_machine_and_end_where_the_task_is(task: TaskRecord) -> None:
    events = events_of(task)

    assert events[0].event_type == "created"
    before = None
    for event in events:
        assert event.from_state == before
        if before is not None:
            assert event.to_state in TASK_TRANSITIONS[TaskState(before)]
        before = event.to_state
    assert before == task.state
    assert [one.created_at_ms for one in events] == sorted(one.created_at_ms for one in events)
