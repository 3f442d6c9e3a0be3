"""Schedules on several coordinators, while leaders, links and stores fail."""
