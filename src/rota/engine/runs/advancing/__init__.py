"""Runs inside a batch: events are fed to them, and their decisions become tasks and rows."""
