"""A cohort while it runs: who ends when, the folders of its trials, and its peers on other workers; no torch."""
