"""Schedules in the code of a program."""
