"""Backups of a SQLite store, made while a coordinator uses it.

The copy has the state of one moment. It is written beside its final place, checked, and then
renamed, so that a file with the name of the backup is always a whole one. Large artifacts are files
of their own and never change: they are copied after the rows that name them.
"""

import os
import shutil
from pathlib import Path

import apsw
from msgspec import Struct

from rota.errors import Invalid, StoreError
from rota.store import migrator
from rota.store.workflow.blobs import Blobs

PRIVATE = 0o600
BUSY_MS = 30_000


class BackupReport(Struct, frozen=True, kw_only=True):
    file: str
    bytes: int
    schema: int  # the version of the store's schema
    artifacts: int  # files that were copied beside it


def back_up(source: str, target: str) -> BackupReport:
    """Copy the store in a file to another file, and check the copy."""
    if not Path(source).is_file():
        raise StoreError(f"there is no store at {source}")
    if Path(target).exists():
        raise Invalid(f"{target} exists already; a backup does not replace a file")
    partial = f"{target}.partial"
    Path(partial).unlink(missing_ok=True)
    try:
        Path(partial).touch(PRIVATE)
        _copy(source, partial)
        schema = _checked_schema(partial)
        artifacts = _copy_artifacts(source, target)
        Path(partial).replace(target)
    except (apsw.Error, OSError) as error:
        raise StoreError(f"the backup of {source} to {target} failed: {error}") from error
    finally:
        Path(partial).unlink(missing_ok=True)
    size = Path(target).stat().st_size
    return BackupReport(file=target, bytes=size, schema=schema, artifacts=artifacts)


def _copy(source: str, target: str) -> None:
    connection = apsw.Connection(source, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(BUSY_MS)
        connection.execute("VACUUM INTO ?", (target,))
    finally:
        connection.close()
    with Path(target).open("rb") as file:
        os.fsync(file.fileno())


def _checked_schema(path: str) -> int:
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        answer = connection.pragma("integrity_check")
        if answer != "ok":
            raise StoreError(f"the copy is damaged, and the store may be, too: {answer}")
        return migrator.version(connection)
    finally:
        connection.close()


def _copy_artifacts(source: str, target: str) -> int:
    """Copy the files of artifacts; those deleted meanwhile belong to runs that are gone."""
    folder, copied = Blobs.beside(source).folder, 0
    if not folder.is_dir():
        return 0
    place = Blobs.beside(target).folder
    place.mkdir(mode=0o700, exist_ok=True)
    for file in folder.iterdir():
        try:
            shutil.copy2(file, place / file.name)
            copied += 1
        except FileNotFoundError:
            continue
    return copied
