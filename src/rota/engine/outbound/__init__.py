"""Calls to other servers: the guarded HTTP client, its domains of a batch, and pushed tasks."""
