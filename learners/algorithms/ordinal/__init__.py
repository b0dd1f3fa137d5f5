"""Algorithms of the papers for ordinal regression."""
