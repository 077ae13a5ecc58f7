"""Reasons for caution about a fit, each with its numbers and the next step."""
