"""The record of a run: the event log, the metrics computed from it, and the timeline."""
