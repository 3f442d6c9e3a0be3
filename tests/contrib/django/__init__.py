"""Tests of the Django backend. `tests/contrib/test_django.py` runs them in a process of their own.

Django's settings belong to a process, and other tests have other ones. So these modules have names
that pytest does not look for.
"""
