"""The commands, one module or package a noun."""
