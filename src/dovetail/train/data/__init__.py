"""Which samples a worker reads, and how."""
