"""Workflow definitions, runs, journals and artifacts in the store."""
