"""Slurm's scheduler in parts: priority, fair tree, limits, the choice of nodes, backfill."""
