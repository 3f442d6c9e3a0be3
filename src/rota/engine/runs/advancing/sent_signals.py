"""Signals that runs send: the run that each is for, or the error of the node that sent it.

A run that sends a signal goes on in any case: a refusal fails the node, and the definition can
handle that as it handles the failure of a task.
"""

from typing import Any

from rota.core.ids import from_text, to_text
from rota.core.limits import MAX_EVENT_TEXT
from rota.core.workflow.commands import SignalRun
from rota.core.workflow.decisions import SendSignal
from rota.core.workflow.program import check_signal
from rota.engine.runs.advancing.run_loader import RunLoader
from rota.engine.runs.cache import LiveRun
from rota.errors import IllegalState, NothingToApprove, RotaError, RunNotFound, TooMany


def addressee(loader: RunLoader, sender: LiveRun, sent: SendSignal) -> LiveRun | dict[str, Any]:
    """Return the run that a signal is for; a dict is the error of one that cannot take it."""
    wanted = to_text(sender.record.id) if sent.run is None else sent.run[:MAX_EVENT_TEXT]
    try:
        return _checked(loader, wanted, sent)
    except (RunNotFound, IllegalState, NothingToApprove, TooMany) as refusal:
        return _error_of(refusal, wanted)


def _checked(loader: RunLoader, run_text: str, sent: SendSignal) -> LiveRun:
    run_id = from_text(run_text)
    live = None if run_id is None else loader.find(run_id)
    if run_id is None or live is None:
        raise RunNotFound(run_text)
    check_signal(live.run, SignalRun(run_id=run_id, name=sent.name))
    return live


def _error_of(refusal: RotaError, run_text: str) -> dict[str, Any]:
    return {
        "type": "signal_refused",
        "message": str(refusal),
        "code": refusal.code,
        "run_id": run_text,
    }
