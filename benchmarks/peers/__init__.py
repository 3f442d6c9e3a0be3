"""The peers: one small file for each, which is a program of its own.

`python -m benchmarks.peers.NAME` runs in the peers' environment, never in the project's. It
takes its options from `measuring.Options` and writes one JSON object a line to standard output:
first the peer's version and settings, then each measurement as soon as it is known, so that what
was measured is kept when the rest fails.
"""
