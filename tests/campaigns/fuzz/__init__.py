"""Hostile input to every decoder and to the server: run short by the tests, long by `python -m tests.campaigns.fuzz`.

Each part is a function of seconds and a seed that gives a `Report`. With the same seed it tries the same things in the
same order; how far it comes depends on the machine, unless it is given a count.
"""
