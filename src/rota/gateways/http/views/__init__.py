"""How nouns look on the wire."""
