"""Calls of the coordinator to other servers: where they may go, and how they are signed."""
