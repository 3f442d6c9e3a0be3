"""How fast is Rota on this machine, and how does that compare? `python -m benchmarks` says."""
