"""Algorithms that the papers compare with; they exist for the papers' tables."""
