import pytest

from rota.core.quotas import Amount
from rota.core.workflow.records import Artifact
from rota.store.workflow.artifacts import ArtifactStore
from tests.store.opened import NOW_MS, Opened


@pytest.fixture
def artifacts(store: Opened) -> ArtifactStore:
    return ArtifactStore(store.tx)


def artifact(
    name: str = "a", *, task: int = 1, fence: int = 1, file: str | None = None
) -> Artifact:
    return Artifact(
        id=0,
        run=7,
        name=name,
        task=task,
        fence=fence,
        media_type="text/plain",
        size=3,
        file=file,
        created_at_ms=NOW_MS,
        committed_at_ms=None,
    )


def names(artifacts: ArtifactStore) -> list[str]:
    return [one.name for one in artifacts.page(7, limit=10, before=None)]


def test_an_artifact_is_seen_once_its_attempt_has_completed(artifacts: ArtifactStore) -> None:
    artifacts.stage(artifact(), b"\0\x01x")
    before = names(artifacts), artifacts.newest(7, "a"), artifacts.has_staged()

    artifacts.commit([(1, 1), (2, 1)], now_ms=NOW_MS + 5)

    found = artifacts.newest(7, "a")
    assert before == ([], None, True)
    assert found is not None
    assert (found.committed_at_ms, found.size) == (NOW_MS + 5, 3)
    assert artifacts.content(found.id) == b"\0\x01x"
    assert not artifacts.has_staged()


def test_only_attempts_that_completed_are_committed(artifacts: ArtifactStore) -> None:
    artifacts.stage(artifact("old", fence=1), b"1")
    artifacts.stage(artifact("new", fence=2), b"2")
    artifacts.stage(artifact("other", task=2), b"3")

    artifacts.commit([(1, 2)], now_ms=NOW_MS)

    assert names(artifacts) == ["new"]
    assert artifacts.staged_usage(1, 1)[0] == 1


def test_an_attempt_replaces_what_it_attached_under_the_same_name(artifacts: ArtifactStore) -> None:
    first = artifacts.stage(artifact(file="f1"), None)
    second = artifacts.stage(artifact(file="f2"), None)

    assert (first, second) == ([], ["f1"])
    assert artifacts.staged_usage(1, 1)[0] == 1
    assert artifacts.files() == {"f2"}


def test_what_was_not_committed_goes_with_the_attempt(artifacts: ArtifactStore) -> None:
    artifacts.stage(artifact("kept", file="f1"), None)
    artifacts.commit([(1, 1)], now_ms=NOW_MS)
    artifacts.stage(artifact("lost", fence=2, file="f2"), None)

    dropped = artifacts.drop_staged([1, 9])

    assert dropped == ["f2"]
    assert names(artifacts) == ["kept"]


def test_artifacts_go_with_their_run(artifacts: ArtifactStore) -> None:
    artifacts.stage(artifact(file="f1"), None)
    artifacts.stage(artifact("b"), b"b")
    artifacts.commit([(1, 1)], now_ms=NOW_MS)

    assert artifacts.drop_of_runs([7, 8]) == ["f1"]
    assert names(artifacts) == []


def test_pages_go_from_the_newest_back(artifacts: ArtifactStore) -> None:
    for number in range(5):
        artifacts.stage(artifact(f"a{number}"), b"x")
    artifacts.commit([(1, 1)], now_ms=NOW_MS)

    first = artifacts.page(7, limit=2, before=None)
    second = artifacts.page(7, limit=2, before=first[-1].id)

    assert [one.name for one in (*first, *second)] == ["a4", "a3", "a2", "a1"]


def test_artifacts_count_for_their_owners_staged_or_committed(artifacts: ArtifactStore) -> None:
    artifacts.stage(artifact("a"), b"123", owner="t1")
    artifacts.stage(artifact("b"), b"123", owner="t2")
    artifacts.commit([(1, 1)], now_ms=NOW_MS)
    artifacts.stage(artifact("c", task=2), b"123", owner="t1")
    artifacts.stage(artifact("d", task=2), b"123")

    usage = artifacts.usage(NOW_MS)

    assert (usage.total, usage.read_at_ms) == (Amount(4, 12), NOW_MS)
    assert usage.owners == {"t1": Amount(2, 6), "t2": Amount(1, 3)}
