"""Workloads that train out of the box."""
