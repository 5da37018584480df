"""Sharing of GPUs: rules for pairs of jobs, and placements."""
