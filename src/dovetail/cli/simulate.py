"""`dovetail simulate`: one policy on one trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dovetail.cli.options import load_trace, read_options, world_options
from dovetail.cli.progress import bar


@click.command()
@click.argument("trace", type=click.Path())
@click.option("--policy", "-p", required=True, help="As in srtf, or tiresias:thresholds=3250/7200.")
@world_options
@click.option("--no-bound", is_flag=True, help="Leave the bound out (it takes a few seconds).")
@click.option("--no-report", is_flag=True, help="With -o: no report.html and no timeline.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A folder to write.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate(
    trace: str,
    policy: str,
    output: Path | None,
    as_json: bool,
    no_bound: bool,
    no_report: bool,
    format_name: str | None,
    assign_models: bool,
    **given: Any,
) -> None:
    """Replay a trace under one policy.

    \b
    Example:
      dovetail simulate month.csv --policy srtf --cluster 32x8 -o srtf-run
    """
    from dovetail.core.policy import parse_policy
    from dovetail.record.tables import print_run
    from dovetail.study.bound import bound, objection, powers_of
    from dovetail.study.run import simulate as run
    from dovetail.study.run import whole_directory, with_bound, write_tables

    options = read_options(given)
    chosen = parse_policy(policy)
    jobs = load_trace(trace, format_name, options.seed, assign_models)
    with_pictures = output is not None and not no_report

    def go(folder: Path | None) -> None:
        last_s = float(jobs.jobs.submit_s[-1]) if len(jobs) else 0.0
        with bar("simulating", last_s, quiet=as_json) as show:
            log_to = None if folder is None else folder / "events.jsonl"
            result = run(
                jobs, chosen, options, log_to=log_to, keep_spans=with_pictures, progress=show
            )
        if not no_bound and not objection(jobs, options):
            found = bound(jobs, options, powers_of(chosen))
            result = with_bound(result, found.mean_jct_s)
        if folder is not None:
            write_tables(result, folder)
            if with_pictures:
                _write_pictures(result, folder)
        if as_json:
            click.echo(json.dumps({**result.summary, "gpu_seconds": result.gpu_seconds}))
        else:
            print_run(result)

    if output is None:
        go(None)
    else:
        with whole_directory(output) as folder:
            go(folder)
        if not as_json:
            click.echo(f"written to {output}", err=True)


def _write_pictures(result: Any, folder: Path) -> None:
    from dovetail.record.report import write_run_report
    from dovetail.record.timeline import write_timeline

    write_run_report(result, folder / "report.html")
    write_timeline(result, folder / "timeline.perfetto-trace")
