"""Endpoints for workflows, runs and artifacts."""
