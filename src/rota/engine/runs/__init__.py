"""Workflow runs inside the batch, and the projections of their journals."""
