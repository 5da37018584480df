"""Where agents and workers run: this machine, or nodes that are clocks."""
