"""What has happened in the store over time: who held what, which state when, who was current?

Commits are numbered. The observer looks at the store after each one, checks it, and remembers
enough to say later whether something was true at any moment between two commits.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation import invariants, picture
from tests.simulation.invariants import demand
from tests.simulation.picture import FinishedRow, Picture, WorkerRow


@dataclass
class Grant:
    """One lease, from the commit that gave it to the one that ended it."""

    task_id: int
    fence: int
    incarnation: int
    holder: str | None
    given_s: float
    since: int
    until: int | None = None

    def lived_after(self, commit: int) -> bool:
        return self.until is None or self.until > commit

    def lived_throughout(self, commit: int) -> bool:
        """Since that commit or before, and it still does."""
        return self.since <= commit and self.until is None


@dataclass
class Tenure:
    """The time during which an incarnation was the current one of its worker."""

    worker_id: str
    since: int
    until: int | None = None


@dataclass
class Step:
    """What one commit changed that promises speak of."""

    gone_workers: list[tuple[str, WorkerRow]] = field(default_factory=list)
    gone_tasks: list[tuple[int, FinishedRow | None]] = field(default_factory=list)
    revived: list[int] = field(default_factory=list)
    queued: list[tuple[int, int]] = field(default_factory=list)  # with the moment they were due
    released: list[Grant] = field(default_factory=list)  # ended, and their tasks still live


class Observer:
    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self.commit = 0
        self.now: Picture = picture.EMPTY
        self.grants: dict[tuple[int, int], Grant] = {}  # by task and fence
        self.tenures: dict[int, Tenure] = {}  # by incarnation
        self.states: dict[int, list[tuple[int, str | None]]] = {}  # by task: since which commit

    def observe(self, now: Picture) -> Step:
        """Look at the store after a commit, or after a restart."""
        before, self.now = self.now, now
        self.commit += 1
        invariants.check_picture(now)
        invariants.check_step(before, now)
        step = Step()
        self._note_leases(before, now, step)
        self._note_workers(before, now, step)
        self._note_states(before, now, step)
        return step

    def _note_leases(self, before: Picture, now: Picture, step: Step) -> None:
        for task_id, row in before.leases.items():
            after = now.leases.get(task_id)
            if after is None or after.fence != row.fence:
                grant = self.grants[task_id, row.fence]
                grant.until = self.commit
                if task_id in now.live:
                    step.released.append(grant)
        for task_id, row in invariants.fresh_leases(before, now).items():
            grant = Grant(
                task_id, row.fence, row.incarnation, row.holder, self.now_s(), self.commit
            )
            earlier = self.grants.setdefault((task_id, row.fence), grant)
            demand(earlier is grant, f"fence {row.fence} of task {task_id:x} was given twice")

    def _note_workers(self, before: Picture, now: Picture, step: Step) -> None:
        if before.workers == now.workers:
            return
        for worker_id, row in before.workers.items():
            after = now.workers.get(worker_id)
            if after is None or after.incarnation != row.incarnation:
                self.tenures[row.incarnation].until = self.commit
            if after is None:
                step.gone_workers.append((worker_id, row))
        highest = max(self.tenures, default=0)
        for worker_id, row in now.workers.items():
            known = self.tenures.get(row.incarnation)
            if known is None:
                demand(row.incarnation > highest, f"incarnation {row.incarnation} does not rise")
                self.tenures[row.incarnation] = Tenure(worker_id, self.commit)
            else:
                is_same = known.worker_id == worker_id and known.until is None
                demand(is_same, f"incarnation {row.incarnation} was given twice")

    def _note_states(self, before: Picture, now: Picture, step: Step) -> None:
        for task_id in sorted(_moved(before, now)):
            state = now.state_of(task_id)
            line = self.states.setdefault(task_id, [])
            if not line or line[-1][1] != state:
                line.append((self.commit, state))
            if state is None:
                step.gone_tasks.append((task_id, before.history.get(task_id)))
            elif task_id in before.history:
                step.revived.append(task_id)
            elif task_id in before.scheduled and task_id in now.ready:
                step.queued.append((task_id, before.scheduled[task_id].due_at_ms))

    # --- looking back -----------------------------------------------------------------------

    def was_in(self, task_id: int, states: set[str], *, since: int) -> bool:
        """Whether a task was in one of these states at that commit or later."""
        for commit, state in reversed(self.states.get(task_id, [])):
            if state in states:
                return True
            if commit <= since:
                break
        return False

    def was_current(self, incarnation: int, *, since: int) -> bool:
        """Whether an incarnation was current at that commit or later."""
        tenure = self.tenures.get(incarnation)
        return tenure is not None and (tenure.until is None or tenure.until > since)

    def is_current_since(self, incarnation: int, commit: int) -> bool:
        tenure = self.tenures.get(incarnation)
        return tenure is not None and tenure.since <= commit and tenure.until is None


def _moved(before: Picture, now: Picture) -> set[int]:
    """The tasks that stand elsewhere than before."""
    moved: set[int] = set()
    for was, place in (
        (before.ready, now.ready),
        (before.scheduled, now.scheduled),
        (before.leases, now.leases),
        (before.history, now.history),
    ):
        moved |= was.keys() ^ place.keys()
    return moved
