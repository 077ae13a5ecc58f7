"""Lanes of a class workload, trained side by side: vectorised, or one after the other."""
