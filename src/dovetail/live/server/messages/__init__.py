"""What a client may ask, and what it is told; a command imports what it says and hears, no more."""
