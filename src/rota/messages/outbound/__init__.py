"""What the coordinator sends to other servers, on the wire."""
