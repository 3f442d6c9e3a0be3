"""The state of a run whose workflow is a function. Only the rules beside this module change it.

The log is kept as it is sent to workers: each entry as JSON. That is compact, and a resumption
joins the entries instead of encoding them again. What rules look up often is kept beside it: the
operations that are pending, and the ends that no function has seen.
"""

from collections import deque
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from rota.core import limits
from rota.core.workflow.decisions import DropTimer, RunDecision, SetRunState, SetTimer
from rota.core.workflow.events import Compensation, RunStarted, TimerKind
from rota.core.workflow.functions.model import (
    CodeDefinition,
    Divergence,
    EventRequest,
    Operation,
    OperationKind,
    Request,
)
from rota.core.workflow.states import RUN_ENDED, RunState

ITEM_SPAN = 2**32  # between the tokens of two items of a map

encode_value = encode_entry = msgspec.json.Encoder().encode
decode_entry = msgspec.json.Decoder(Operation).decode


def item_token(token: int, index: int) -> int:
    """The token of one item of a map, for the task of that item."""
    return token + (index + 1) * ITEM_SPAN


class Function(Struct, frozen=True):
    """One version of a workflow that is code."""

    definition: CodeDefinition
    version: int


class PendingOperation(Struct):
    """An operation that the coordinator was asked for, and that has not ended."""

    token: int  # the number of its first entry, over all restarts
    path: str
    kind: OperationKind
    request: Request
    asked_at_ms: int
    # Of a map.
    results: list[Any] | None = None
    running: dict[int, None] | None = None  # items whose tasks have not ended
    next_item: int = 0  # the first one without a task


class KeptSignal(Struct, frozen=True):
    number: int  # of all signals of the run, from 1
    payload: Any
    key: str | None = None


class GroupWaits(Struct):
    """The groups of operations that a stopped function waits for."""

    missing: list[int]  # of each group, the operations that have not ended
    groups: dict[str, list[int]]  # path of a pending operation -> the groups that it is in


class UnseenEnd(Struct, frozen=True, gc=False):
    place: int  # in the log, from 1
    is_failed: bool
    asked: EventRequest | None = None  # of one that has taken a signal


class CodeRun(Struct):
    function: Function
    input: Any
    state: RunState = RunState.RUNNING
    started: RunStarted | None = None
    log: list[bytes] = []  # since the last restart
    log_bytes: int = 0
    first: int = 0  # entries before the last restart; a token is this plus a place in the log
    reported: int = 0  # entries that functions have reported since the last restart
    restarts: int = 0
    count: int = 0  # operations since the last restart
    pending: dict[str, PendingOperation] = {}  # by path
    tokens: dict[int, str] = {}  # of pending operations -> path
    begun: dict[str, None] = {}  # paths of `once` that have not ended
    unseen: dict[str, UnseenEnd] = {}  # by path
    waits: GroupWaits | None = None  # None: it does not wait
    is_held: bool = False  # a task runs the function, or waits for a worker
    is_due: bool = False  # the function is to be resumed as soon as it may
    log_at_resume: int = 0  # entries of the log when it was resumed last, over all restarts
    cancelled: str | None = None  # why the function is to stop
    is_timed_out: bool = False  # because the run took longer than it may
    is_told: bool = False  # the task that runs the function, or ran it last, says so
    divergence: Divergence | None = None  # of a run that is paused for it
    resumable: dict[str, int] = {}  # path of a dropped operation -> its token, with its child run
    timers: dict[tuple[TimerKind, int], int] = {}
    signals: dict[str, deque[KeptSignal]] = {}  # that nothing has asked for yet
    signal_keys: dict[str, None] = {}  # of the newest signals
    signal_count: int = 0
    waiting: dict[str, dict[int, None]] = {}  # signal -> tokens
    changed_waits: dict[int, None] = {}  # tokens of signals and maps, since the last reading
    approvals: dict[str, None] = {}  # names of approvals that were asked for
    answerable: dict[int, str] = {}  # number of a received signal -> its key
    replies: dict[str, bytes] = {}  # JSON, by the key of the signal
    published: dict[str, Any] = {}
    streams: dict[str, list[bytes]] = {}  # JSON
    stream_values: int = 0
    ended_spans: list[str] = []  # of the tasks that have ended since it was resumed last
    last_span: str | UnsetType = UNSET  # of the task that has ended last
    has_news: bool = False  # for callers that wait for values of streams, or for replies
    output: Any = None
    error: dict[str, Any] | None = None
    now_ms: int = 0
    decisions: list[RunDecision] = []
    trace: list[tuple[int, Operation]] | None = None  # new entries, for projections

    # --- the log ------------------------------------------------------------------------------

    def append(self, operation: Operation) -> int:
        """Append an entry to the log, and return its place."""
        entry = encode_entry(operation)
        self.log.append(entry)
        self.log_bytes += len(entry)
        place = len(self.log)
        if self.trace is not None:
            self.trace.append((self.first + place, operation))
        return place

    @property
    def length(self) -> int:
        """The entries of the log, over all restarts."""
        return self.first + len(self.log)

    def operations(self) -> list[Operation]:
        """The entries of the log, decoded."""
        return [decode_entry(entry) for entry in self.log]

    def keep(self, entries: list[Operation]) -> None:
        """Replace the log by some of its entries.

        Tokens stay unique: the next entry has a higher number than any before.
        """
        length = self.length
        self.log = [encode_entry(one) for one in entries]
        self.log_bytes = sum(map(len, self.log))
        self.first = length - len(self.log)
        self.unseen = {
            one.path: UnseenEnd(place, one.state == "failed", self.unseen[one.path].asked)
            for place, one in enumerate(entries, 1)
            if one.path in self.unseen and one.state in {"done", "failed"}
        }

    # --- traces -------------------------------------------------------------------------------

    def note_span(self, traceparent: str | UnsetType) -> None:
        """Note the span of a task that has ended, for the function that goes on after it."""
        if not isinstance(traceparent, UnsetType):
            self.last_span = traceparent
            if len(self.ended_spans) < limits.MAX_TRACE_LINKS:
                self.ended_spans.append(traceparent)

    def take_spans(self) -> tuple[str, ...]:
        """The spans of the tasks that have ended since the function was resumed last."""
        spans, self.ended_spans = tuple(self.ended_spans), []
        return spans

    # --- timers and states --------------------------------------------------------------------

    def set_timer(self, kind: TimerKind, number: int, due_at_ms: int) -> None:
        self.timers[kind, number] = due_at_ms
        self.decisions.append(SetTimer(kind, number, due_at_ms))

    def drop_timer(self, kind: TimerKind, number: int) -> None:
        if self.timers.pop((kind, number), None) is not None:
            self.decisions.append(DropTimer(kind, number))

    def set_state(
        self, state: RunState, *, output: Any = None, error: dict[str, Any] | None = None
    ) -> None:
        self.state, self.output, self.error = self.state.to(state), output, error
        self.decisions.append(SetRunState(state, output, error))

    # --- as runs of graphs have them ------------------------------------------------------------

    @property
    def is_ended(self) -> bool:
        return self.state in RUN_ENDED

    @property
    def can_go_on(self) -> bool:
        """Whether a retry of its parent can let this run go on: a function always can."""
        return True

    def undoable(self) -> tuple[Compensation, ...]:
        """Nothing for its parent to undo: a function undoes its own work."""
        return ()

    @property
    def documents(self) -> dict[str, Any]:
        """What callers see of a run that is under way."""
        return {"state": self.published, "output": self.output}
