"""Links between coordinators: an upgrade of an HTTP connection, a handshake, then frames."""
