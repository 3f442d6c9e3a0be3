"""The takeover measurements find the leader, and count only what happened after it had gone."""

from pathlib import Path

import pytest

from benchmarks.processes import Failed
from benchmarks.scaling.fleet import Member, find_leader
from benchmarks.scaling.keyed_load import Acknowledged
from benchmarks.scaling.takeover import longest_gap_s, next_write_s


def test_the_leader_is_found_by_its_name_or_by_its_address(tmp_path: Path) -> None:
    first, second = (Member(name, tmp_path, "postgresql://unused") for name in ("a", "b"))
    address = f"127.0.0.1:{second.port}"

    assert find_leader({"name": "b", "epoch": 7}, [first, second]) is second
    assert find_leader({"name": "other", "address": address}, [first, second]) is second
    with pytest.raises(Failed, match="none of the members"):
        find_leader({"name": "c"}, [first, second])


def test_a_write_that_was_sent_before_the_kill_does_not_end_the_takeover() -> None:
    before = Acknowledged(sent_s=9.9, at_s=10.1, port=1)
    after = Acknowledged(sent_s=10.2, at_s=11.5, port=1)

    assert next_write_s([before], killed_s=10.0) is None
    assert next_write_s([before, after], killed_s=10.0) == 11.5


def test_the_longest_gap_includes_the_time_before_the_first_write_and_after_the_last() -> None:
    writes = [Acknowledged(sent_s=0, at_s=at_s, port=1) for at_s in (10.5, 10.75)]

    assert longest_gap_s(writes, start_s=10.0, end_s=11.0) == 0.5
    assert longest_gap_s(writes, start_s=10.5, end_s=12.0) == 1.25
    assert longest_gap_s([], start_s=10.0, end_s=11.0) == 1.0
