"""Databases that tests run on: PostgreSQL servers that come up by themselves, and clean schemas."""
