"""Half-valid input over HTTP, WebSocket and ZeroMQ against a real coordinator process.

`make fuzz` runs for a minute on each; `tests/fuzz/test_fuzz.py` runs the same for a second each.
"""
