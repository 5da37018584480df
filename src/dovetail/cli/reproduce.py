"""`dovetail reproduce`: a paper's tables and figures, beside what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dovetail.cli.options import output_folder
from dovetail.cli.progress import bar, busy


@click.command()
@click.argument("paper")
@click.option("--quick", is_flag=True, help="A sample, in under a minute.")
@click.option("--full", is_flag=True, help="Every trace and seed, as long as it takes.")
@click.option("--seeds", default=0, help="Random assignments; 0: as the effort allows.")
@click.option("--data", type=click.Path(path_type=Path), help="Folder of traces and profiles.")
@click.option("--processes", default=0, help="Runs at once; 0: one on each core.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder to write.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def reproduce(
    paper: str,
    quick: bool,
    full: bool,
    seeds: int,
    data: Path | None,
    processes: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Regenerate the tables and figures of a PAPER: a-srpt, afs, gimbal, muri, sjf-bsbf.

    `systems` is none: it compares all systems on the same jobs, as no paper does.
    Published values stand beside ours, with a verdict for each row. The traces are looked for in
    --data, else in the folder that the environment variable DOVETAIL_DATA names. Without them
    generated ones are used, and the report says so.

    \b
    Example:
      dovetail reproduce afs --quick -o afs-report
    """
    from papers.pages import findings_dict, view, write_findings
    from papers.setting import Setting, find_data
    from papers.studies import study_called
    from papers.trials import Trials

    from dovetail.core.errors import InputError

    if quick and full:
        raise InputError("--quick and --full", "exclude each other")
    if processes < 0:
        raise InputError("--processes", "it must be 0 (one on each core) or more")
    study = study_called(paper)
    effort = "quick" if quick else "full" if full else "default"
    setting = Setting(find_data(data), effort, seeds)
    with output_folder(output) as folder:
        with bar(f"reproducing {paper}", 1.0) as show:
            findings = study.find(setting, Trials(processes, show))
        if folder is not None:
            with busy("writing"):
                write_findings(study, findings, folder)
    if as_json:
        click.echo(json.dumps(findings_dict(study, findings)))
        return
    from dovetail.cli.screen import show as print_view

    print_view(view(study, findings))
    if output is not None:
        click.echo(f"written to {output}, report: {output / 'report.html'}", err=True)
