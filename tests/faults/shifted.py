"""Rota's command line with a clock that is wrong by `FAULTS_CLOCK_SHIFT_MS`. For tests alone."""

import os
import time

from rota.cli.main import main

_SHIFT_NS = int(os.environ["FAULTS_CLOCK_SHIFT_MS"]) * 1_000_000
_right_time_ns = time.time_ns


def _wrong_time_ns() -> int:
    return _right_time_ns() + _SHIFT_NS


if __name__ == "__main__":
    time.time_ns = _wrong_time_ns
    main()
