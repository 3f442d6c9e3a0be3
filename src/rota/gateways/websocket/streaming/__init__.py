"""Streaming workers: leases pushed and results taken over one socket."""
