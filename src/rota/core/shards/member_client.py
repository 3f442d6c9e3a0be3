"""The member's side of the protocol: what it holds, for how long, and what it must send.

Theory of operation. A `MemberClient` is one incarnation of a worker as a member of one service. Its
driver feeds it what happens (an assignment, a returned callback, passed time), by the worker's own
clock, which only rises; it answers with steps for the driver to carry out. It does no I/O itself.

The lease. Every message has a number, and its answer has the same. A message renews the lease at
the coordinator at some moment after the client *sent* it; so the client counts from the sending of
the newest answered message, and allows for clocks that run at different speeds. However long an
answer takes, the client stops before the coordinator gives its shards to others. A push answers
nothing and renews nothing. When the lease is over, everything is lost, the incarnation with it.

The shards. An assignment is a function of the generation, so the newest generation counts. A shard
is held from the assignment that lists it until the callback that gives it up has returned, and as
long as it is held, every heartbeat lists it. A heartbeat that names a generation and does not list
a shard says that the client knows of the revocation and has given the shard up. That releases it.
A shard whose revocation has begun is given up even if it is assigned again meanwhile: it is then
assigned under the new epoch, once it has been released.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from rota.core.shards.commands import BeatMember, LeaveMember, MemberCommand, RegisterMember
from rota.core.shards.members import PROTOCOL, Assignment

RETRY_MS = 1_000  # until an unanswered change is sent again
GATHER_MS = 100  # between two heartbeats that report releases, while more follow
MAX_UNANSWERED = 64  # messages whose sending time is kept; older ones count as lost
DRIFT = 0.02  # the share by which this clock may run slow


class HeldState(StrEnum):
    ASSIGNED = "assigned"  # on_assigned runs
    ACTIVE = "active"  # it has returned
    REVOKING = "revoking"  # on_revoked runs


# The state of a held shard changes only through `turn`; None: no longer held.
HELD_TRANSITIONS: dict[HeldState, frozenset[HeldState | None]] = {
    HeldState.ASSIGNED: frozenset({HeldState.ACTIVE}),
    HeldState.ACTIVE: frozenset({HeldState.REVOKING}),
    HeldState.REVOKING: frozenset({HeldState.ASSIGNED, None}),
}


class Loss(StrEnum):
    EXPIRED = "expired"  # the lease ran out without an answer
    # A newer incarnation has the name, or a revoked shard was kept for too long. A worker that
    # registers again at once may fight with another process for the name, so it backs off.
    FENCED = "fenced"
    FORGOTTEN = "forgotten"  # the coordinator does not know this member
    LEFT = "left"  # the worker left


# --- steps for the driver, to be carried out in order -------------------------------------------


class Assigned(Struct, frozen=True, tag="Assigned"):
    """Call on_assigned; when it has returned, `activate`."""

    shard: int
    epoch: int


class Revoked(Struct, frozen=True, tag="Revoked"):
    """Call on_revoked, which may act on the shard to the end; when it has returned, `let_go`."""

    shard: int
    epoch: int


class Lost(Struct, frozen=True, tag="Lost"):
    """Stop acting on all shards and call on_lost; this incarnation is over.

    A new one may begin when all callbacks, earlier ones included, have returned: it takes over the
    shards of the old one, and other members may be given some of them at once.
    """

    shards: tuple[int, ...]  # sorted
    epochs: tuple[int, ...]  # beside them
    loss: Loss
    reason: str | None = None  # given by the coordinator


class Send(Struct, frozen=True, tag="Send"):
    message: MemberCommand


Step = Assigned | Revoked | Lost | Send


# --- the state machine --------------------------------------------------------------------------


@dataclass(slots=True)
class MemberShard:
    epoch: int
    state: HeldState
    wanted: int | None  # the epoch in the newest assignment; None: it does not list the shard

    def turn(self, state: HeldState) -> None:
        assert state in HELD_TRANSITIONS[self.state]
        self.state = state


class MemberClient:
    def __init__(self, applicant: RegisterMember, *, now_ms: int, drift: float = DRIFT) -> None:
        """Begin an incarnation. The first `tick` sends the registration."""
        assert applicant.protocol == PROTOCOL
        assert 0 <= drift < 1

        self.applicant = applicant
        self.shard_count = applicant.shard_count  # may be changed; the next message carries it
        self.drift = drift
        self.generation: int | None = None  # the newest one seen
        self.lease_end_ms: int | None = None  # None: no message is answered yet
        self.held: dict[int, MemberShard] = {}
        self.is_draining = False
        self.is_over = False  # this incarnation has ended
        self._next_seq = 0
        self._answered_seq = -1  # the highest one
        self._news_seq = 0  # of the first message that carries all changes
        self._sent_ms: dict[int, int] = {}  # by seq, of the messages that may yet be answered
        self._spoke_ms = now_ms
        self._lease_ms = 0  # less the drift
        self._interval_ms = RETRY_MS
        self._giving_up = 0  # how many of the shards are revoking

    # --- asking -----------------------------------------------------------------------------

    def is_acting(self, shard: int, now_ms: int) -> bool:
        """Whether the worker may act on a shard now. To be asked before each effect."""
        if self.is_over or self.lease_end_ms is None or now_ms >= self.lease_end_ms:
            return False
        return shard in self.held

    def epoch_of(self, shard: int) -> int | None:
        """The epoch that an effect on a shard must carry; None: the shard is not held."""
        held = self.held.get(shard)
        return None if held is None else held.epoch

    @property
    def may_leave(self) -> bool:
        """Whether the client drains and holds no shard any more."""
        return self.is_draining and not self.held

    def next_moment_ms(self) -> int | None:
        """When `tick` next has something to do, as far as is known; None: never."""
        if self.is_over:
            return None
        due_ms = self._due_ms()
        return due_ms if self.lease_end_ms is None else min(due_ms, self.lease_end_ms)

    # --- what happens -----------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Step]:
        """Expire the lease if it is over, and send a message if one is due."""
        lost = self.expire(now_ms)
        if lost or self.is_over or now_ms < self._due_ms():
            return lost
        return [self._speak(now_ms)]

    def expire(self, now_ms: int) -> list[Step]:
        """Lose all shards if the lease is over. A worker calls this first after a pause."""
        if self.is_over or self.lease_end_ms is None or now_ms < self.lease_end_ms:
            return []
        return [self._lose(Loss.EXPIRED)]

    def receive(self, assignment: Assignment, now_ms: int) -> list[Step]:
        """Take up an assignment: an answer or a push, perhaps late, doubled or out of order."""
        if self.is_over or assignment.incarnation != self.applicant.incarnation:
            return []
        if assignment.status != "ok":
            loss = Loss.FENCED if assignment.status == "fenced" else Loss.FORGOTTEN
            return [self._lose(loss, assignment.reason)]
        # No answer revives a lease that is over: the shards may have been others' since.
        lost = self.expire(now_ms)
        if lost:
            return lost
        self._note_answer(assignment, now_ms)
        # The first answer repeats a push that came before it; and an answer may shorten the lease.
        if self.lease_end_ms is None or now_ms >= self.lease_end_ms:
            return self.expire(now_ms)
        if self.generation is not None and assignment.generation <= self.generation:
            return []
        return self._apply(assignment)

    def activate(self, shard: int) -> list[Step]:
        """Note that on_assigned has returned."""
        held = self.held.get(shard)
        if held is None:
            return []  # lost meanwhile
        held.turn(HeldState.ACTIVE)
        return self._settle([shard])

    def let_go(self, shard: int) -> list[Step]:
        """Note that on_revoked has returned, so that the worker no longer acts on the shard."""
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
        """Prepare to leave: heartbeats say so, and the coordinator moves the shards away."""
        self.is_draining = True
        self._have_news()

    def leave(self) -> list[Step]:
        """Leave at once. Shards that are still held are lost."""
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
                return  # too late to begin; no shard is held, so the next message asks again
            if self.is_draining:
                self._have_news()  # a registration does not carry it
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
                self.held[shard] = MemberShard(epoch, HeldState.ASSIGNED, wanted=epoch)
                steps.append(Assigned(shard, epoch))
        if not self.held.keys() >= set(assignment.revoking):
            # Revoked before it was seen: the coordinator waits for a heartbeat without it.
            self._have_news()
        return steps

    def _settle(self, shards: Iterable[int]) -> list[Step]:
        """Begin to give up the shards that the newest assignment does not list."""
        steps: list[Step] = []
        for shard in shards:
            held = self.held[shard]
            if held.state is HeldState.ACTIVE and held.wanted != held.epoch:
                held.turn(HeldState.REVOKING)
                self._giving_up += 1
                steps.append(Revoked(shard, held.epoch))
        return steps

    # --- messages ---------------------------------------------------------------------------

    def _have_news(self) -> None:
        self._news_seq = self._next_seq

    def _due_ms(self) -> int:
        """When the next message is due."""
        if self._news_seq == self._next_seq:
            has_more = self._giving_up > 0
            return self._spoke_ms + (GATHER_MS if has_more else 0)
        if self._news_seq > self._answered_seq:
            return self._spoke_ms + min(RETRY_MS, self._interval_ms)
        due_ms = self._spoke_ms + self._interval_ms
        if self.lease_end_ms is None or self._answered_seq == self._next_seq - 1:
            return due_ms
        # No answer comes. From the middle of the lease on, messages are more frequent.
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
