"""Benchmarks of Rota and of its peers on this machine, run by `python -m benchmarks`."""
