"""The Python client of a live cluster, and what can be read while no controller runs."""

from dovetail.live.client.client import Client

__all__ = ["Client"]
