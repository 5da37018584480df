"""The interfaces of the live world to clock, messages and store: the real ones and virtual ones."""
