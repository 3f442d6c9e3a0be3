"""Measure one peer: `python -m benchmarks.peers NAME`. A peer's module is imported, never run.

Run as a file it would be `__main__` here and something else in its worker, and the peers know
their tasks by the module's name.
"""

import importlib
import sys

from benchmarks.peers import measuring

if __name__ == "__main__":
    name = sys.argv.pop(1)
    measuring.main(importlib.import_module(f"benchmarks.peers.{name}").Peer)
