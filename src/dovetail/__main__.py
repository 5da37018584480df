"""Lets `python -m dovetail` be the same as `dovetail`."""

from dovetail.cli.main import main

main()
