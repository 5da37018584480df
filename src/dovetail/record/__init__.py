"""What a run leaves behind: the log, the numbers folded from it, and their pictures."""
