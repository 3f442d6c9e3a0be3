"""Scopes: a fan-out opens one, its branches run, and its joins make one token of them again."""
