"""Gathers commands into batches and commits each batch in one transaction."""
