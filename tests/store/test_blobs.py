import os
from pathlib import Path

import pytest

from rota.store.workflow.blobs import Blobs


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs.beside(str(tmp_path / "rota.db"))


def write(blobs: Blobs, content: bytes) -> str:
    blob = blobs.create()
    blob.write(content)
    blob.finish()
    return blob.name


def test_what_was_written_is_read_again(blobs: Blobs) -> None:
    name = write(blobs, b"content")

    file = blobs.open(name)

    assert file is not None
    with file:
        assert file.read() == b"content"


def test_the_file_and_its_folder_are_synced_before_it_counts(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").is_dir())

    monkeypatch.setattr(os, "fsync", note)
    write(blobs, b"content")

    assert synced == [True, False, True]  # where the folder is, the file, the folder


def test_what_was_given_up_is_gone(blobs: Blobs, tmp_path: Path) -> None:
    blob = blobs.create()
    blob.write(b"half")
    blob.discard()

    assert list((tmp_path / "rota.db.artifacts").iterdir()) == []
    assert blobs.open(blob.name) is None


def test_a_sweep_leaves_what_is_wanted(blobs: Blobs) -> None:
    wanted, orphan = write(blobs, b"a"), write(blobs, b"b")

    assert blobs.sweep({wanted}) == 1
    assert blobs.open(orphan) is None
    found = blobs.open(wanted)
    assert found is not None
    found.close()


def test_where_nothing_ever_was_there_is_nothing_to_sweep(blobs: Blobs) -> None:
    assert blobs.sweep(set()) == 0
