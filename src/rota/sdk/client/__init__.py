"""Calls to a coordinator: one function a call, and the client that sends them."""
