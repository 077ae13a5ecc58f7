"""Training cohorts of lanes, inside a worker process."""
