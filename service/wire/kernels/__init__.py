"""Kernels that read what clients send: JSON of dense events to columns, and the frames and heads of websockets."""
