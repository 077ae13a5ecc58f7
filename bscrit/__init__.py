"""Critical batch size of a training run: measure it, fit it, plot it."""

__version__ = "0.1.0"
