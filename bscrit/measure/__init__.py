"""Gradient noise, inside a worker process."""
