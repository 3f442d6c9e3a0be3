"""Coordinators that share one PostgreSQL: presence, changes by peers, shared counters."""
