"""Measures the speed of training and reports it."""
