"""Workflows as code: what runs a durable function inside a worker, and what its author calls."""
