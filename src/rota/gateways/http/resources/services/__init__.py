"""Endpoints for services, their members and checkpoints."""
