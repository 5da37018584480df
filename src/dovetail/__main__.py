"""`python -m dovetail`: the command line."""

from dovetail.cli.main import main

main()
