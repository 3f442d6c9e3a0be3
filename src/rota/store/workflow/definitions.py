"""Workflow definitions, each version once: graphs, which are data, and functions.

Both kinds are JSON in the same column. A function is in an object under `code`, which no graph has.
"""

from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from rota.core.workflow.commands import Publishing
from rota.core.workflow.definition.model import Definition, canonical, hash_of
from rota.core.workflow.functions.model import CodeDefinition, code_hash_of
from rota.core.workflow.program import AnyDefinition
from rota.core.workflow.records import UNPUBLISHED, Version
from rota.store.database import Transaction

CODE = b'{"code":'  # how the JSON of a function begins


class _Coded(Struct):
    code: CodeDefinition


_encode = msgspec.json.Encoder().encode
_decode_graph = msgspec.json.Decoder(Definition).decode
_decode_code = msgspec.json.Decoder(_Coded).decode


class StoredVersion(NamedTuple):
    version: Version
    is_new: bool


class WorkflowStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def put(
        self, definition: AnyDefinition, *, now_ms: int, publish: Publishing = "always"
    ) -> StoredVersion:
        """Store a definition. The same content is the same version.

        The version becomes the current one, unless it is not published, or is published only when
        it is new and it is not.
        """
        name = definition.name
        if isinstance(definition, CodeDefinition):
            content_hash, content = code_hash_of(definition), _encode(_Coded(definition))
        else:
            content_hash, content = hash_of(definition), canonical(definition)
        known = self._tx.record(Version, "workflows.by_hash", name=name, hash=content_hash)
        last_put = self._tx.value("workflows.last_put", name=name) or 0
        put_number = UNPUBLISHED if publish == "never" else max(last_put, 0) + 1
        if known is not None:
            is_current = 0 < known.put_number == last_put
            is_wanted = publish == "always" or (publish == "new" and known.put_number < 0)
            if is_wanted and not is_current:
                known = msgspec.structs.replace(known, put_number=put_number)
                self._tx.pipeline(
                    "workflows.publish", name=name, version=known.version, put_number=put_number
                )
            return StoredVersion(known, is_new=False)
        number = (self._tx.value("workflows.highest", name=name) or 0) + 1
        version = Version(
            name=name,
            version=number,
            hash=content_hash,
            created_at_ms=now_ms,
            put_number=put_number,
        )
        self._tx.pipeline("workflows.add", **asdict(version), definition=content)
        return StoredVersion(version, is_new=True)

    def current(self, name: str) -> int | None:
        """The version that runs of this name have; None: none is published."""
        found: int | None = self._tx.value("workflows.current", name=name)
        return found

    def version(self, name: str, version: int) -> Version | None:
        return self._tx.record(Version, "workflows.version", name=name, version=version)

    def definition(self, name: str, version: int) -> AnyDefinition | None:
        found: bytes | None = self._tx.value("workflows.definition", name=name, version=version)
        if found is None:
            return None
        return _decode_code(found).code if found[: len(CODE)] == CODE else _decode_graph(found)

    def versions(self, name: str) -> list[Version]:
        return self._tx.records(Version, "workflows.versions", name=name)

    def all(self) -> list[Version]:
        """The current version of each workflow; the newest of one that was never published."""
        return self._tx.records(Version, "workflows.all")
