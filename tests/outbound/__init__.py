"""Calls of the coordinator to other servers."""
