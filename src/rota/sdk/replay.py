"""Replays exported journals offline, for tests of changed definitions."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rota.core.workflow.replay import Difference, ReplayedEntry
from rota.core.workflow.replay import replay as replay_entries
from rota.errors import Invalid
from rota.sdk.definitions import Source, definition_of
from rota.sdk.workflow import Workflow

Journal = Path | str | bytes | Mapping[str, Any] | Iterable[Any]


def replay(journal: Journal, definition: Source | Workflow) -> list[Difference]:
    """The entries of an exported journal that a definition decides differently.

        def test_the_new_definition_decides_as_the_old_one_did():
            assert rota.replay(Path("journal.json"), "panel.yaml") == []

    `journal` is a path, JSON text, or the decoded value, as `rota runs journal RUN --json` and
    `run.journal()` export it. `definition` is a workflow, or a source for `app.workflow`.
    """
    if isinstance(definition, Workflow):
        definition = definition.definition
    return replay_entries(definition_of(definition), entries_of(journal))


def entries_of(journal: Journal) -> list[ReplayedEntry]:
    """The entries of an exported journal."""
    document: Any = journal
    try:
        if isinstance(document, Path):
            document = document.read_bytes()
        if isinstance(document, str | bytes):
            document = msgspec.json.decode(document)
        if isinstance(document, Mapping):
            document = document["items"]
        return msgspec.convert(msgspec.to_builtins(list(document)), list[ReplayedEntry])
    except OSError as error:
        raise Invalid(f"the journal cannot be read: {error}") from error
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise Invalid(f"this is not a journal, or it is one of another version: {error}") from error
