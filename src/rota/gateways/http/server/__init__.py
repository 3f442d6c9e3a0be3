"""The HTTP/1.1 server: listener, connections, requests and responses, on the httptools parser."""
