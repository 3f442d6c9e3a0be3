"""Several coordinators on one PostgreSQL: their rates, their takeovers, and what they hold."""
