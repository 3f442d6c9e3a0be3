"""From a request to its handler, and from the handler's value to the response."""
