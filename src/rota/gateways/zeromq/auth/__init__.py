"""CURVE keys: which clients may connect, and for which workers each may speak."""
