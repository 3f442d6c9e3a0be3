"""What does a member hold, how long may it act on it, and what has it to say? The worker's side.

Theory of operation. A `Holding` is one incarnation of a worker as a member of one service. It is
told what happens (an assignment came, a callback returned, time passed), by the worker's own clock,
which only ever rises; and it answers with steps for a driver to carry out. It sends nothing, waits
for nothing and calls nobody.

The lease. Every message has a number, and its answer bears the same. Hearing us renews our lease
at the coordinator, at some moment after we *sent*; so we count from the sending of the newest
message that was answered, and allow for clocks that run at different speeds. However long an answer
takes, we stop before the coordinator hands our shards on. A push answers nothing and renews
nothing. When the lease is over everything is lost, the incarnation with it: a new one begins anew.

The shards. What we are told is a function of the generation, so the newest one counts and all
others are old news. A shard is held from the assignment that lists it until the callback that gives
it up has returned, and as long as it is held, every beat lists it. A beat that names a generation
and does not list a shard says: I know that I shall give this up, and I have. That releases it.
A shard whose giving up has begun is given up, even if it is assigned again meanwhile: then it is
assigned anew, under the new epoch, once it has been let go of.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from rota.core.shards.events import BeatMember, LeaveMember, MemberEvent, RegisterMember
from rota.core.shards.members import PROTOCOL, Assignment

RETRY_MS = 1_000  # until what we have to say is said again, when nobody answers
GATHER_MS = 100  # between two beats that tell what we let go of, while there is more to come
MAX_UNANSWERED = 64  # messages whose sending we remember; older ones count as lost
DRIFT = 0.02  # by how much our clock may run slower than it should


class HeldState(StrEnum):
    ASSIGNED = "assigned"  # on_assigned runs
    ACTIVE = "active"  # it has returned
    REVOKING = "revoking"  # on_revoked runs


# The whole life of a held shard; None: gone.
HELD_TRANSITIONS: dict[HeldState, frozenset[HeldState | None]] = {
    HeldState.ASSIGNED: frozenset({HeldState.ACTIVE}),
    HeldState.ACTIVE: frozenset({HeldState.REVOKING}),
    HeldState.REVOKING: frozenset({HeldState.ASSIGNED, None}),
}


class Loss(StrEnum):
    EXPIRED = "expired"  # the lease ran out before anybody answered
    # A newer incarnation has our name, or we kept a revoked shard for too long. Whoever begins anew
    # at once might fight with another process for the name: wait a while, and longer each time.
    FENCED = "fenced"
    FORGOTTEN = "forgotten"  # the coordinator does not know us
    LEFT = "left"  # we said so


# --- steps for the driver, to be carried out in order -------------------------------------------


class Assigned(Struct, frozen=True, tag=True):
    """Call on_assigned; when it has returned, `activate`."""

    shard: int
    epoch: int


class Revoked(Struct, frozen=True, tag=True):
    """Call on_revoked, which may act on the shard to the end; when it has returned, `let_go`."""

    shard: int
    epoch: int


class Lost(Struct, frozen=True, tag=True):
    """Act on nothing any more, and call on_lost; this incarnation is over.

    A new one may begin when all callbacks have returned, those of before included: it takes over
    what the old one held, and others may be given some of that at once.
    """

    shards: tuple[int, ...]  # sorted
    epochs: tuple[int, ...]  # beside them
    loss: Loss
    reason: str | None = None  # what the coordinator said


class Send(Struct, frozen=True, tag=True):
    message: MemberEvent


Step = Assigned | Revoked | Lost | Send


# --- the state machine --------------------------------------------------------------------------


@dataclass(slots=True)
class Held:
    epoch: int
    state: HeldState
    wanted: int | None  # the epoch in the newest assignment; None: it does not list the shard

    def turn(self, state: HeldState) -> None:
        assert state in HELD_TRANSITIONS[self.state]
        self.state = state


class Holding:
    def __init__(self, applicant: RegisterMember, *, now_ms: int, drift: float = DRIFT) -> None:
        """Begin now: the first `tick` registers, with what the applicant says of itself."""
        assert applicant.protocol == PROTOCOL
        assert 0 <= drift < 1

        self.applicant = applicant
        self.shard_count = applicant.shard_count  # may be changed: the next message names it
        self.drift = drift
        self.generation: int | None = None  # the newest one we have seen
        self.lease_end_ms: int | None = None  # None: nobody has answered yet
        self.held: dict[int, Held] = {}
        self.is_draining = False
        self.is_over = False  # this incarnation can do nothing any more
        self._next_seq = 0
        self._answered_seq = -1  # the highest one
        self._news_seq = 0  # of the first message that says all we have to say
        self._sent_ms: dict[int, int] = {}  # by seq, of the messages that may yet be answered
        self._spoke_ms = now_ms
        self._lease_ms = 0  # as long as we count on it
        self._interval_ms = RETRY_MS
        self._giving_up = 0  # how many of the shards are revoking

    # --- asking -----------------------------------------------------------------------------

    def is_acting(self, shard: int, now_ms: int) -> bool:
        """Whether we may act on a shard at this very moment. To be asked before each effect."""
        if self.is_over or self.lease_end_ms is None or now_ms >= self.lease_end_ms:
            return False
        return shard in self.held

    def epoch_of(self, shard: int) -> int | None:
        """What an effect on a shard must carry; None: we do not hold it."""
        held = self.held.get(shard)
        return None if held is None else held.epoch

    @property
    def may_leave(self) -> bool:
        """Whether we wanted to be rid of all shards, and are."""
        return self.is_draining and not self.held

    def next_moment_ms(self) -> int | None:
        """When `tick` will have something to do, as far as is known; None: never again."""
        if self.is_over:
            return None
        due_ms = self._due_ms()
        return due_ms if self.lease_end_ms is None else min(due_ms, self.lease_end_ms)

    # --- what happens -----------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Step]:
        """Time has passed: the lease may be over, a message may be due."""
        lost = self.expire(now_ms)
        if lost or self.is_over or now_ms < self._due_ms():
            return lost
        return [self._speak(now_ms)]

    def expire(self, now_ms: int) -> list[Step]:
        """If the lease is over, all is lost. Whoever comes back from a pause asks this first."""
        if self.is_over or self.lease_end_ms is None or now_ms < self.lease_end_ms:
            return []
        return [self._lose(Loss.EXPIRED)]

    def receive(self, assignment: Assignment, now_ms: int) -> list[Step]:
        """An assignment came, as an answer or as a push; perhaps late, doubled, out of order."""
        if self.is_over or assignment.incarnation != self.applicant.incarnation:
            return []
        if assignment.status != "ok":
            loss = Loss.FENCED if assignment.status == "fenced" else Loss.FORGOTTEN
            return [self._lose(loss, assignment.reason)]
        # No answer revives a lease that is over: we may have been given up and let in again since.
        lost = self.expire(now_ms)
        if lost:
            return lost
        self._note_answer(assignment, now_ms)
        # What a push says before any answer, the answer will say again; and an answer may have cut
        # the lease short.
        if self.lease_end_ms is None or now_ms >= self.lease_end_ms:
            return self.expire(now_ms)
        if self.generation is not None and assignment.generation <= self.generation:
            return []
        return self._apply(assignment)

    def activate(self, shard: int) -> list[Step]:
        """on_assigned has returned."""
        held = self.held.get(shard)
        if held is None:
            return []  # lost meanwhile
        held.turn(HeldState.ACTIVE)
        return self._settle([shard])

    def let_go(self, shard: int) -> list[Step]:
        """on_revoked has returned: nobody here acts on the shard any more."""
        held = self.held.get(shard)
        if held is None:
            return []  # lost meanwhile
        assert held.state is HeldState.REVOKING
        self._giving_up -= 1
        if held.wanted is not None and held.wanted > held.epoch:
            held.turn(HeldState.ASSIGNED)
            held.epoch = held.wanted
            return [Assigned(shard, held.epoch)]
        del self.held[shard]
        self._have_news()
        return []

    def drain(self) -> None:
        """We are about to leave: beats say so, and our shards will be asked back."""
        self.is_draining = True
        self._have_news()

    def leave(self) -> list[Step]:
        """Go at once, and say so; what is still held is lost."""
        if self.is_over:
            return []
        steps: list[Step] = [self._lose(Loss.LEFT)] if self.held else []
        self.is_over = True
        applicant = self.applicant
        message = LeaveMember(
            service=applicant.service,
            worker_id=applicant.worker_id,
            incarnation=applicant.incarnation,
        )
        return [*steps, Send(message)]

    # --- the lease --------------------------------------------------------------------------

    def _note_answer(self, assignment: Assignment, now_ms: int) -> None:
        """Renew the lease, if this answers a newer message than any answer before."""
        seq = assignment.seq
        if seq is None or seq not in self._sent_ms:
            return
        lease_ms = int(assignment.lease_ms * (1 - self.drift))
        end_ms = self._sent_ms[seq] + lease_ms
        self._sent_ms = {later: at_ms for later, at_ms in self._sent_ms.items() if later > seq}
        self._answered_seq = seq
        if self.lease_end_ms is None:
            if end_ms <= now_ms:
                return  # too late to begin with; there is nothing to lose, so we just ask again
            if self.is_draining:
                self._have_news()  # which registering has not told
        self._lease_ms, self.lease_end_ms = lease_ms, end_ms
        self._interval_ms = assignment.heartbeat_interval_ms

    def _lose(self, loss: Loss, reason: str | None = None) -> Lost:
        shards = tuple(sorted(self.held))
        epochs = tuple([self.held[shard].epoch for shard in shards])
        self.held.clear()
        self.is_over = True
        return Lost(shards, epochs, loss, reason)

    # --- the shards -------------------------------------------------------------------------

    def _apply(self, assignment: Assignment) -> list[Step]:
        self.generation = assignment.generation
        wanted = dict(zip(assignment.shards, assignment.epochs, strict=True))
        for shard, held in self.held.items():
            held.wanted = wanted.get(shard)
        steps = self._settle(self.held)
        for shard, epoch in wanted.items():
            if shard not in self.held:
                self.held[shard] = Held(epoch, HeldState.ASSIGNED, wanted=epoch)
                steps.append(Assigned(shard, epoch))
        if not self.held.keys() >= set(assignment.revoking):
            # Asked back before we knew that it was ours: somebody waits for us to say so.
            self._have_news()
        return steps

    def _settle(self, shards: Iterable[int]) -> list[Step]:
        """Begin to give up what the newest assignment no longer gives us."""
        steps: list[Step] = []
        for shard in shards:
            held = self.held[shard]
            if held.state is HeldState.ACTIVE and held.wanted != held.epoch:
                held.turn(HeldState.REVOKING)
                self._giving_up += 1
                steps.append(Revoked(shard, held.epoch))
        return steps

    # --- talking ----------------------------------------------------------------------------

    def _have_news(self) -> None:
        self._news_seq = self._next_seq

    def _due_ms(self) -> int:
        """When we should next say something."""
        if self._news_seq == self._next_seq:
            has_more = self._giving_up > 0
            return self._spoke_ms + (GATHER_MS if has_more else 0)
        if self._news_seq > self._answered_seq:
            return self._spoke_ms + min(RETRY_MS, self._interval_ms)
        due_ms = self._spoke_ms + self._interval_ms
        if self.lease_end_ms is None or self._answered_seq == self._next_seq - 1:
            return due_ms
        # Nobody answers. From the middle of the lease on we try more often.
        hurried_ms = self._spoke_ms + self._interval_ms // 4
        return min(due_ms, max(hurried_ms, self.lease_end_ms - self._lease_ms // 2))

    def _speak(self, now_ms: int) -> Send:
        seq = self._next_seq
        self._next_seq += 1
        self._spoke_ms = now_ms
        self._sent_ms[seq] = now_ms
        if len(self._sent_ms) > MAX_UNANSWERED:
            del self._sent_ms[next(iter(self._sent_ms))]
        return Send(self._register(seq) if self.lease_end_ms is None else self._beat(seq))

    def _register(self, seq: int) -> RegisterMember:
        return replace(self.applicant, seq=seq, shard_count=self.shard_count)

    def _beat(self, seq: int) -> BeatMember:
        applicant = self.applicant
        return BeatMember(
            service=applicant.service,
            worker_id=applicant.worker_id,
            shard_count=self.shard_count,
            holds=tuple(sorted(self.held)),
            protocol=PROTOCOL,
            incarnation=applicant.incarnation,
            generation=self.generation,
            seq=seq,
            draining=self.is_draining,
        )
