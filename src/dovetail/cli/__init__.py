"""The command line: thin; it parses, calls `study` and prints."""
