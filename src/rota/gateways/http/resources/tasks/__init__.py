"""Endpoints for tasks, queues, jobs and failures."""
