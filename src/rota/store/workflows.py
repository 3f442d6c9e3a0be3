"""Workflow definitions, each version once."""

import msgspec

from rota.core.workflow.definition import Definition, canonical, hash_of
from rota.core.workflow.records import Version
from rota.store.database import Transaction

_decode = msgspec.json.Decoder(Definition).decode


class Workflows:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def put(self, definition: Definition, *, now_ms: int) -> tuple[Version, bool]:
        """Keep a definition; the same content is the same version. True: it is new."""
        content_hash = hash_of(definition)
        known = self._tx.rows("workflows.by_hash", definition.name, content_hash)
        if known:
            version = self.version(definition.name, known[0][0])
            assert version is not None
            return version, False
        number = (self.newest(definition.name) or 0) + 1
        content = canonical(definition)
        self._tx.run("workflows.add", definition.name, number, content_hash, content, now_ms)
        made = Version(
            name=definition.name, version=number, hash=content_hash, created_at_ms=now_ms
        )
        return made, True

    def newest(self, name: str) -> int | None:
        found: int | None = self._tx.rows("workflows.newest", name)[0][0]
        return found

    def version(self, name: str, version: int) -> Version | None:
        for number, content_hash, _, created_at_ms in self._tx.rows("workflows.one", name, version):
            return Version(
                name=name, version=number, hash=content_hash, created_at_ms=created_at_ms
            )
        return None

    def definition(self, name: str, version: int) -> Definition | None:
        for _, _, definition, _ in self._tx.rows("workflows.one", name, version):
            return _decode(definition)
        return None

    def versions(self, name: str) -> list[Version]:
        return [
            Version(name=name, version=number, hash=content_hash, created_at_ms=created_at_ms)
            for number, content_hash, created_at_ms in self._tx.rows("workflows.versions", name)
        ]

    def every(self) -> list[Version]:
        """The newest version of each."""
        return [
            Version(name=name, version=number, hash=content_hash, created_at_ms=created_at_ms)
            for name, number, content_hash, created_at_ms in self._tx.rows("workflows.every")
        ]
