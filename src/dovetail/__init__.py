"""Dovetail: one scheduler that fits deep-learning training jobs together on a GPU cluster."""

__version__ = "0.1.0"
