"""Assigns queued tasks to the workers that wait for work."""
