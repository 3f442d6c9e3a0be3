"""The endpoints, one module a noun."""
