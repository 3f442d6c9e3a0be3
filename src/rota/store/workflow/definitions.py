"""Workflow definitions, each version once."""

from typing import NamedTuple

import msgspec
from msgspec.structs import asdict

from rota.core.workflow.definition.model import Definition, canonical, hash_of
from rota.core.workflow.records import Version
from rota.store.database import Transaction

_decode = msgspec.json.Decoder(Definition).decode


class StoredVersion(NamedTuple):
    version: Version
    is_new: bool


class WorkflowStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def put(self, definition: Definition, *, now_ms: int) -> StoredVersion:
        """Store a definition. The same content is the same version."""
        name, content_hash = definition.name, hash_of(definition)
        known = self._tx.record(Version, "workflows.by_hash", name=name, hash=content_hash)
        if known is not None:
            return StoredVersion(known, is_new=False)
        number = (self.newest(name) or 0) + 1
        version = Version(name=name, version=number, hash=content_hash, created_at_ms=now_ms)
        self._tx.pipeline("workflows.add", **asdict(version), definition=canonical(definition))
        return StoredVersion(version, is_new=True)

    def newest(self, name: str) -> int | None:
        found: int | None = self._tx.value("workflows.newest", name=name)
        return found

    def version(self, name: str, version: int) -> Version | None:
        return self._tx.record(Version, "workflows.version", name=name, version=version)

    def definition(self, name: str, version: int) -> Definition | None:
        found = self._tx.value("workflows.definition", name=name, version=version)
        return None if found is None else _decode(found)

    def versions(self, name: str) -> list[Version]:
        return self._tx.records(Version, "workflows.versions", name=name)

    def all(self) -> list[Version]:
        """The newest version of each workflow."""
        return self._tx.records(Version, "workflows.all")
