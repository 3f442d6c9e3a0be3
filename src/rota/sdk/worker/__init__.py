"""The worker process: leasing, execution, reporting and heartbeats."""
