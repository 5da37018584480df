"""What reports of training say: progress, speed, memory, and pairs that do harm."""
