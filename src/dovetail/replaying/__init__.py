"""Recorded runs again: logs as traces, decisions compared, and predictions against events."""
