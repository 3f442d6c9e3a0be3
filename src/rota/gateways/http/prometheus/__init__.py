"""The `/metrics` page."""
