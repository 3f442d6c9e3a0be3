"""The bars of the benchmarks are about figures that a run can have."""

from benchmarks import bars
from benchmarks.comparing import PEERS
from benchmarks.measurements import MEASUREMENTS
from benchmarks.postgres import MEASUREMENTS as POSTGRES_MEASUREMENTS


def test_every_bar_belongs_to_a_measurement_or_to_a_peer() -> None:
    known = {*MEASUREMENTS, *POSTGRES_MEASUREMENTS, *PEERS}

    assert {bar.measurement for bar in bars.BARS} <= known


def test_every_bar_has_a_row_of_its_own() -> None:
    rows = [bar.row for bar in bars.BARS]

    assert len(rows) == len(set(rows))


def test_a_bar_of_a_full_size_does_not_judge_a_smaller_measurement() -> None:
    def rows(queued: int) -> list[str]:
        facts = {"grown_mb": 200.0, "queued": queued}
        found = bars.judge({"rota": {"memory-million": facts}, "peers": {}})
        return [verdict.row for verdict in found if not verdict.is_met]

    assert rows(queued=100_000) == []
    assert rows(queued=1_000_000) == ["several: a million queued, memory"]
