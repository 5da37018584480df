"""What workers exchange: gradients, buffers, flags, and the state of those who join."""
