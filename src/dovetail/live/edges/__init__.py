"""What connects the live world to clocks, sockets and disk; the real ones and the virtual."""
