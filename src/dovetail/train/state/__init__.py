"""The state of a training job, and its checkpoints."""
