"""Fits the model zoo to published measurements: `python -m tools.zoo`."""
