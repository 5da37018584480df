"""The live cluster: the same policies, with real jobs on real machines."""
