"""Reads of committed state, beside the writer."""
