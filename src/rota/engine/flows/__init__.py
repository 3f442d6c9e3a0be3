"""Limits and settings of queues inside a batch."""
