"""Elastic shares: how many GPUs each job deserves, and the draft that follows."""
