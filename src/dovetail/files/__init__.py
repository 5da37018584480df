"""Files that appear whole or not at all; any package may write through it."""
