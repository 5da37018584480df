"""The search for the best setting of the jobs on the same GPUs (GIMBAL)."""
