"""How far has a run come? Its journal folded, and kept, so that looking again reads what is new.

A run of ten thousand branches has a journal of megabytes, and somebody watches it: each look would
read it from its beginning. A journal only grows, so what was folded stays true; and the fold keeps
a film of the graph, so that every moment of the past is at hand, too.
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
        self._kept: OrderedDict[int, Trace] = OrderedDict()
        # Folds are read and extended on several threads; one at a time, for they are shared.
        self._lock = Lock()

    def look(self, tx: Transaction, run_id: int, seen: Callable[[Trace], T]) -> T:
        """What `seen` makes of a run as it is."""
        with self._lock:
            trace = self._folded(tx, run_id)
            trace.executing = frozenset(Runs(tx).executing(run_id))
            return seen(trace)

    def _folded(self, tx: Transaction, run_id: int) -> Trace:
        trace = self._kept.pop(run_id, None) or Trace()
        for entry in Runs(tx).journal(run_id, after=trace.number, limit=NEWEST):
            trace.read(entry)
        self._kept[run_id] = trace
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return trace
