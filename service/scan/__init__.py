"""Kernels that read bodies: JSON of dense events to columns."""
