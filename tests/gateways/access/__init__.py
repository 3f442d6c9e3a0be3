"""The access matrix: every route and message, for every scope and every kind of token."""
