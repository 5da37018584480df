"""A policy beside a cluster that another scheduler runs: what it would do, and what of it."""
