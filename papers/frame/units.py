"""Seconds in the units that papers print."""
