"""How does a user test that old runs still work? Replay their exported journals, offline.

    def test_the_new_definition_decides_as_the_old_one_did():
        assert rota.replay(Path("journal.json"), "panel.yaml") == []

`rota runs journal RUN --json` exports a journal, and so does `run.journal()`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rota.core.workflow.replay import Difference, Entry
from rota.core.workflow.replay import replay as replayed
from rota.errors import Invalid
from rota.sdk.definitions import Source, definition_of
from rota.sdk.workflows import Workflow

Journal = Path | str | bytes | Mapping[str, Any] | Iterable[Any]


def replay(journal: Journal, definition: "Source | Workflow") -> list[Difference]:
    """The entries of a journal that a definition decides differently; none when it does not.

    `journal` is what was exported: a path, JSON text, or the decoded value. `definition` is
    anything that `app.workflow` reads, or a workflow.
    """
    if isinstance(definition, Workflow):
        definition = definition.definition
    return replayed(definition_of(definition), entries_of(journal))


def entries_of(journal: Journal) -> list[Entry]:
    """A journal as the core takes it."""
    document: Any = journal
    try:
        if isinstance(document, Path):
            document = document.read_bytes()
        if isinstance(document, str | bytes):
            document = msgspec.json.decode(document)
        if isinstance(document, Mapping):
            document = document["items"]
        return msgspec.convert(msgspec.to_builtins(list(document)), list[Entry])
    except OSError as error:
        raise Invalid(f"the journal cannot be read: {error}") from error
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise Invalid(f"this is no journal, or one of another version: {error}") from error
