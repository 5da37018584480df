"""The Python client of a live cluster, and the reader of its folder without a controller."""

from dovetail.live.client.client import Client

__all__ = ["Client"]
