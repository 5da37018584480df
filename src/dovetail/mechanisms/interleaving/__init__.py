"""Which jobs take turns on the stages of the same GPUs (Muri)."""
