"""SQLite: one file, one writer, readers beside it."""
