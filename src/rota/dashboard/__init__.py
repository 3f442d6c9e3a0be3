"""The dashboard: static files, and the routes that serve them to browsers."""
