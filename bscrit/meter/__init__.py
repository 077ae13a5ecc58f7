"""The gradient noise scale in somebody's own training loop."""
