"""Interleaving: jobs that take turns on the stages of the same GPUs (Muri)."""
