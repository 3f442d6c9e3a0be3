"""The rules of Rota as pure functions: no I/O, clock, randomness or logging."""
