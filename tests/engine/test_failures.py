"""What tasks of an older store failed of is worked out when a coordinator starts on it."""

from pathlib import Path

import apsw

from rota.store import migrator
from tests.gateways.serving import served

BEFORE = 4  # the last schema without causes


def write_old_store(path: Path) -> None:
    """Two tasks that failed alike and one of nothing that anybody knows."""
    connection = apsw.Connection(str(path))
    for number in range(1, BEFORE + 1):
        connection.execute(migrator.migrations()[number])
    connection.execute(f"PRAGMA user_version = {BEFORE}")
    connection.execute("INSERT INTO lane VALUES (1, 'default', 'work', '[]')")
    for number, error in enumerate(
        (
            b'{"type": "E", "message": "row 1 is odd"}',
            b'{"type": "E", "message": "row 22 is odd"}',
            None,
        ),
        start=1,
    ):
        connection.execute(
            "INSERT INTO history (id, lane, priority, payload, created_at_ms, state, fence,"
            " attempt, finished_at_ms, error) VALUES (?, 1, 0, x'7b7d', 1, 'failed', 1, 1, ?, ?)",
            (number, 1_799_999_999_000 + number, error),
        )
    connection.close()


async def test_failures_from_before_causes_were_noted_are_grouped_like_new_ones(
    tmp_path: Path,
) -> None:
    write_old_store(tmp_path / "rota.db")

    async with served(tmp_path) as api:
        worker = await api.register()
        await api.submit(max_attempts=1)
        (lease,) = await worker.lease()
        await worker.fail(lease, {"type": "E", "message": "row 3 is odd"})
        groups = (await api.get("/api/failures")).json()["items"]

    assert [one["count"] for one in groups] == [3, 1]
    assert groups[0]["error"]["message"] == "row 3 is odd"
    assert groups[1]["error"] is None
