"""Authentication: from tokens to callers, and the end of revoked tokens."""
