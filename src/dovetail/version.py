"""The version of Dovetail, which logs and stores record."""

__version__ = "0.1.0"
