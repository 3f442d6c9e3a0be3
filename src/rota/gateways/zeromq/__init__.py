"""The ZeroMQ gateway: one ROUTER socket for the members of services."""
