"""What maintainers run from a checkout; nothing of it is in the wheel."""
