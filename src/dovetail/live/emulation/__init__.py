"""Emulated nodes: real agents over synthetic jobs whose workers are clocks."""
