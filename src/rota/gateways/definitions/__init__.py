"""Definitions of workflows from outside: read and checked where they cannot block anything else."""
