"""How far has a run come? Its journal folded, and kept, so that looking again reads what is new.

A run of ten thousand branches has a journal of megabytes, and somebody watches it: each look would
read it from its beginning. A journal only grows, so what was folded stays true. Two folds of a run
are kept, one of all there is and one of a moment in its past, which is read forward from where it
stands when a later moment is asked for.
"""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from rota.engine.projections import Trace
from rota.store.database import Transaction
from rota.store.runs import NEWEST, Runs

T = TypeVar("T")

MOST_KEPT = 6  # folds, those of runs that were looked at last


class Traces:
    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, bool], Trace] = OrderedDict()
        # Folds are read and extended on several threads; one at a time, for they are shared.
        self._lock = Lock()

    def look(
        self, tx: Transaction, run_id: int, seen: Callable[[Trace], T], *, at: int | None
    ) -> T:
        """What `seen` makes of a run as it is, or as it was after entry `at` of its journal."""
        with self._lock:
            trace = self._folded(tx, run_id, at)
            # Who works is known of the present alone.
            trace.executing = (
                frozenset() if at is not None else frozenset(Runs(tx).executing(run_id))
            )
            return seen(trace)

    def _folded(self, tx: Transaction, run_id: int, at: int | None) -> Trace:
        key = (run_id, at is not None)
        until = NEWEST if at is None else at
        trace = self._kept.pop(key, None)
        if trace is None or trace.number > until:
            trace = Trace()
        for entry in Runs(tx).journal(run_id, after=trace.number, limit=until - trace.number):
            trace.read(entry)
        self._kept[key] = trace
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return trace
