"""Algorithms that the papers compare with; they exist for the papers' tables.

Start with `lr`, the simplest online one, or `svc`, the simplest that is fitted to a batch.
"""
