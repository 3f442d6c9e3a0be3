"""Dispatch: matching of tasks and workers, wait reasons, and autoscaling."""
