"""Schedules in the engine: when they are due, and their part of a batch."""
