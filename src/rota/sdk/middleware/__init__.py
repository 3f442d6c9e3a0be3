"""Middleware: code of users around the enqueueing and the execution of tasks."""
