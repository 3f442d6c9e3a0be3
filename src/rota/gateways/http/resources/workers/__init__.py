"""Endpoints for workers and for scaling them."""
