"""What runs a durable function: its log, its branches, its steps, and the host in a worker."""
