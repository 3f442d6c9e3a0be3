"""Journals of earlier versions lead to the decisions that were stored with them."""

import lzma
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from rota.core.workflow.replay import ReplayedEntry, replay
from tests.old_stores.journals import OldJournal

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", [path.name for path in HERE.glob("*.journals.xz")])
def test_every_journal_of_an_earlier_version_replays(name: str) -> None:
    content = lzma.decompress((HERE / name).read_bytes())
    journals = msgspec.json.decode(content, type=list[OldJournal])
    seen: Counter[str] = Counter()
    for journal in journals:
        entries = [
            ReplayedEntry(number=number, event=event, decisions=decisions)
            for number, (event, decisions) in enumerate(journal.entries, 1)
        ]
        seen.update(type(entry.event).__name__ for entry in entries)
        seen.update(str(one["type"]) for entry in entries for one in entry.decisions)

        assert replay(journal.definition, entries) == []

    assert seen.keys() >= {"RunRetried", "RunCancelRequested", "CancelChild", "TakeSignal"}
