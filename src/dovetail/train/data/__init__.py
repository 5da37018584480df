"""The data of a job: its order, how workers split it, and how samples are read."""
