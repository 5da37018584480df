"""The command line: parses options, calls the library and prints the result."""
