"""Schedules: when tasks and runs are started by time, and what happens when that cannot be."""
