"""How are those answered who have something in a commit? All of them in one go, on the loop."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence

import structlog

from rota.core.events import LeaseWork, ReturnLeases
from rota.core.replies import Granted
from rota.engine.entries import Answer, Entry

log = structlog.get_logger("rota.engine")


def answer_all(
    answers: Sequence[tuple[Entry, object]], *, take_back: Callable[[Entry, object], None]
) -> None:
    """Say what became of each; what nobody waits for any more is taken back."""
    called: list[tuple[Answer, object]] = []
    for entry, outcome in answers:
        if entry.answer is not None:
            called.append((entry.answer, outcome))
        elif entry.future.done():
            take_back(entry, outcome)
        else:
            if isinstance(outcome, Exception):
                entry.future.set_exception(outcome)
            else:
                entry.future.set_result(outcome)
            if entry.on_answered is not None:
                _call(entry.on_answered)
    if called:
        # Not at once: what earlier commits have to say to the same peers comes first.
        asyncio.get_running_loop().call_soon(_give, called)


def _call(on_answered: Callable[[], None]) -> None:
    try:
        on_answered()
    except Exception:
        log.exception("an answer could not be taken")


def _give(answers: Iterable[tuple[Answer, object]]) -> None:
    for answer, outcome in answers:
        try:
            answer(outcome)
        except Exception:
            # Whoever it was for, the others are to be answered all the same.
            log.exception("an answer could not be given")


def returned_by(entry: Entry, outcome: object) -> Iterator[ReturnLeases]:
    """What a caller that has gone away was given, as it goes back."""
    rest, entry.rest = entry.rest, None
    if rest is not None:
        rest.is_gone = True
        if not rest.future.cancel() and not rest.future.cancelled():
            yield from returned_by(rest, rest.future.exception() or rest.future.result())
    event = entry.event
    if isinstance(event, LeaseWork) and isinstance(outcome, Granted) and outcome.leases:
        yield ReturnLeases(
            worker_id=event.worker_id,
            incarnation=event.incarnation,
            leases=tuple((task.id, task.fence) for task in outcome.leases),
        )
