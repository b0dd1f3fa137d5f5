"""Ensembles: combinations of several models, learnt online."""
