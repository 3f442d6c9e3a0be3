"""The clients in other languages, run against real coordinators."""
