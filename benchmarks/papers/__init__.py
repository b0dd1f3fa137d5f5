"""The tables and figures of the five papers, run anew on public data sets: see `python -m benchmarks.papers --help`."""
