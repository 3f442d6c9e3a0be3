"""Tasks: what they are, how they are submitted, attempted, retried and ended."""
