"""What workers exchange: gradients, buffers, flags, and the state for joining workers."""
