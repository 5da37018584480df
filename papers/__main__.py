"""`python -m papers PAPER`: a paper's tables and figures, beside what it prints."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from dovetail.cli.main import run_command
from dovetail.cli.options import output_folder
from dovetail.cli.progress import bar, busy
from dovetail.core.errors import InputError
from papers.frame import paper as catalogue
from papers.frame.experiment import Results
from papers.frame.page import reproduction_dict, view, write_reproduction
from papers.frame.scope import Scope, find_data


@click.command()
@click.argument("name", metavar="[PAPER]", required=False)
@click.option("--quick", is_flag=True, help="A sample, in under a minute.")
@click.option("--full", is_flag=True, help="Every trace and seed, as long as it takes.")
@click.option("--seeds", default=0, help="Random assignments; 0: as the effort allows.")
@click.option("--data", type=click.Path(path_type=Path), help="Folder of traces and profiles.")
@click.option("--processes", default=0, help="Runs at once; 0: one on each core.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder to write.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def reproduce(
    name: str | None,
    quick: bool,
    full: bool,
    seeds: int,
    data: Path | None,
    processes: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Regenerate the tables and figures of a PAPER: a-srpt, afs, gimbal, muri, server-filling,
    sia or sjf-bsbf.

    `systems` is no paper: it compares all systems on the same jobs. Without a PAPER the command
    lists all. Published values stand beside ours, with a verdict for each row. Traces are read
    from --data, else from the folder in the environment variable DOVETAIL_DATA. Without them the
    command generates traces, and the report says so.

    \b
    Example:
      python -m papers afs --quick -o afs-report
    """
    if quick and full:
        raise InputError("--quick and --full", "exclude each other")
    if processes < 0:
        raise InputError("--processes", "it must be 0 (one on each core) or more")
    if name is None:
        _list_papers(as_json)
        return
    paper = catalogue.paper_called(name)
    effort = "quick" if quick else "full" if full else "default"
    scope = Scope(find_data(data), effort, seeds)
    with output_folder(output) as folder:
        with bar(f"reproducing {name}", 1.0) as show:
            reproduction = paper.reproduce(scope, Results(processes, show))
        if folder is not None:
            with busy("writing"):
                write_reproduction(reproduction, folder)
    if as_json:
        click.echo(json.dumps(reproduction_dict(reproduction)))
        return
    from dovetail.cli.terminal import show as print_view

    print_view(view(reproduction))
    if output is not None:
        click.echo(f"written to {output}, report: {output / 'report.html'}", err=True)


def _list_papers(as_json: bool) -> None:
    titles = {name: catalogue.paper_called(name).title for name in catalogue.PAPERS}
    if as_json:
        click.echo(json.dumps({"papers": titles}))
        return
    for name, title in titles.items():
        click.echo(f"{name:<16}{title}")


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code of a command line."""
    # A polite end, as batch systems send it, must clean up like an interrupt does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return run_command(reproduce, list(arguments), "python -m papers")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
