"""Workflows as code: what a function has done, what it waits for, and what follows from both."""
