"""The rules of schedules."""
