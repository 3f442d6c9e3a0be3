"""The store: SQL behind typed methods that run in the caller's transaction and never commit."""
