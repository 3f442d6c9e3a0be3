"""Reads of workflows and their runs, with the journals, projections and artifacts of runs."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from rota.core.workflow.program import AnyDefinition
from rota.core.workflow.records import Artifact, JournalEntry, RunRecord, Version
from rota.engine.queries.reader import StoreReader
from rota.engine.queries.waits import WaitQueries
from rota.engine.runs.function_projection import empty_projection
from rota.engine.runs.projections import RunProjection, RunProjectionCache
from rota.store.database import Transaction
from rota.store.workflow.artifacts import ArtifactStore
from rota.store.workflow.definitions import WorkflowStore
from rota.store.workflow.runs import RunStore

T = TypeVar("T")


class WorkflowQueries:
    def __init__(self, reader: StoreReader) -> None:
        self._read = reader.read

    async def all(self) -> list[Version]:
        """Return the current version of each workflow."""
        return await self._read(lambda tx: WorkflowStore(tx).all())

    async def versions(self, name: str) -> list[Version]:
        """Return all versions of a workflow, the newest first."""
        return await self._read(lambda tx: WorkflowStore(tx).versions(name))

    async def current(self, name: str) -> int | None:
        """Return the version that runs of this name have; None: none is published."""
        return await self._read(lambda tx: WorkflowStore(tx).current(name))

    async def version(self, name: str, version: int) -> Version | None:
        return await self._read(lambda tx: WorkflowStore(tx).version(name, version))

    async def definition(self, name: str, version: int) -> AnyDefinition | None:
        return await self._read(lambda tx: WorkflowStore(tx).definition(name, version))


class StoredArtifact(NamedTuple):
    artifact: Artifact
    content: bytes | None  # None: the content is in a file


class RunQueries:
    def __init__(self, reader: StoreReader) -> None:
        self._read = reader.read
        self._projections = RunProjectionCache(empty_projection)
        self.waits = WaitQueries(reader)

    async def by_id(self, run_id: int) -> RunRecord | None:
        found = await self._read(lambda tx: RunStore(tx).by_ids([run_id]))
        return found.get(run_id)

    async def page(
        self, *, workflow: str | None, state: str | None, limit: int, before: int | None
    ) -> list[RunRecord]:
        """Return a page of runs, newest first."""
        return await self._read(
            lambda tx: RunStore(tx).page(workflow=workflow, state=state, limit=limit, before=before)
        )

    async def journal(self, run_id: int, *, after: int, limit: int) -> list[JournalEntry]:
        """Return the entries of a run's journal after a number, the oldest first."""
        return await self._read(lambda tx: RunStore(tx).journal(run_id, after=after, limit=limit))

    async def project(self, run_id: int, view: Callable[[RunProjection], T]) -> T:
        """Return what `view` makes of the projection of a run's journal.

        `view` runs on the thread of the reader, and must not keep the projection.
        """
        return await self._read(lambda tx: self._projections.look(tx, run_id, view))

    async def artifacts(
        self, run_id: int, *, limit: int, before: int | None = None
    ) -> list[Artifact]:
        """Return a page of a run's committed artifacts, newest first."""
        return await self._read(
            lambda tx: ArtifactStore(tx).page(run_id, limit=limit, before=before)
        )

    async def artifact(self, run_id: int, name: str) -> StoredArtifact | None:
        """Return the newest committed artifact of a name, with its content if the store has it."""

        def body(tx: Transaction) -> StoredArtifact | None:
            store = ArtifactStore(tx)
            found = store.newest(run_id, name)
            if found is None:
                return None
            return StoredArtifact(found, store.content(found.id) if found.file is None else None)

        return await self._read(body)
