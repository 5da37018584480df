"""The command line: thin; it parses, calls `study` and prints."""


def main() -> None:
    """Runs the command line and exits with its code."""
    from dovetail.cli.main import main as run

    run()
