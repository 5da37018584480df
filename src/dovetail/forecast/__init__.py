"""Forecasts of job lengths."""
