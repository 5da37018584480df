"""`dovetail simulate`: simulates one policy on one trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from dovetail.cli.options import (
    folder_option,
    json_option,
    load_trace,
    output_folder,
    refuse_unused,
    say_left_out,
    world_options,
)
from dovetail.cli.progress import bar, busy

if TYPE_CHECKING:
    from dovetail.core.policy import Policy
    from dovetail.core.trace import Trace
    from dovetail.record.result import RunResult
    from dovetail.study.option_texts import OptionTexts
    from dovetail.study.options import Options


@click.command()
@click.argument("trace", type=click.Path())
@click.option("--policy", "-p", required=True, help="E.g. srtf, or tiresias:thresholds=3250/7200.")
@world_options
@click.option("--no-bound", is_flag=True, help="Skip the lower bound (seconds on a long trace).")
@click.option("--no-report", is_flag=True, help="With -o: skip report, plots and timeline.")
@folder_option
@json_option
def simulate(
    trace: str,
    policy: str,
    output: Path | None,
    as_json: bool,
    no_bound: bool,
    no_report: bool,
    format_name: str | None,
    assign_models: bool,
    **option_texts: Unpack[OptionTexts],
) -> None:
    """Simulate one policy on a trace.

    With -o, writes a folder with summary.json, jobs.csv, events.jsonl, report.html, plots/ and a
    timeline for ui.perfetto.dev. A run that fails leaves no folder.

    \b
    Example:
      dovetail simulate month.csv --policy srtf --cluster 32x8 -o srtf-run
    """
    from dovetail.core.policy import parse_policy
    from dovetail.forecast.available import lengths_missing, told_words
    from dovetail.report.tables import run_view
    from dovetail.study.blocked_types import blocked_types
    from dovetail.study.folder import run_dict, write_run
    from dovetail.study.inferred import with_inferred_capacity
    from dovetail.study.left_out import as_sentence
    from dovetail.study.option_texts import check_window, options_on, read_options
    from dovetail.study.tenant_notes import tenant_notes
    from dovetail.study.unused_powers import limit_notes
    from dovetail.traces.loss import import_sentence

    options = read_options(option_texts)
    chosen = parse_policy(policy)
    refuse_unused("--no-report", "-o", used=output is not None)
    with output_folder(output) as folder:
        jobs = load_trace(trace, format_name, options.seed if assign_models else None)
        options, assumed = options_on(jobs, option_texts)
        check_window(jobs, options)
        options, inferred = with_inferred_capacity(options, jobs)
        lost = say_left_out(jobs, options, as_json)
        cautions = [*map(as_sentence, assumed), *blocked_types(jobs, options.cluster, [chosen])]
        pictures = folder is not None and not no_report
        result = _run(jobs, chosen, options, folder, pictures, not no_bound)
        if folder is not None:
            with busy("writing"):
                write_run(result, folder, pictures=pictures, cautions=[*cautions, *lost])
    if as_json:
        click.echo("".join(f"note: {text}\n" for text in cautions), err=True, nl=False)
        click.echo(json.dumps(run_dict(result)))
        return
    from dovetail.cli.terminal import show

    modelled = len(jobs) - int(result.number("jobs_without_model") or 0)
    told = told_words(options.forecast, chosen, jobs.jobs)
    notes = [*limit_notes(jobs, options, {policy: chosen.powers}, modelled), *told, *inferred]
    notes += [*tenant_notes(jobs.jobs, options.cluster, [chosen]), import_sentence(jobs)]
    show(run_view(result, notes, cautions + lengths_missing(options.forecast, [chosen], jobs.jobs)))
    if output is not None:
        click.echo(f"written to {output}", err=True)


def _run(
    jobs: Trace,
    policy: Policy,
    options: Options,
    folder: Path | None,
    pictures: bool,
    with_a_bound: bool,
) -> RunResult:
    from dovetail.study.bound import bound_for
    from dovetail.study.run import simulate as run
    from dovetail.study.run import with_bound

    first_s, last_s = (float(jobs.jobs.submit_s[i]) if len(jobs) else 0.0 for i in (0, -1))
    log_to = None if folder is None else folder / "events.jsonl"
    with bar("simulating", last_s - first_s) as show:
        result = run(
            jobs,
            policy,
            options,
            log_to=log_to,
            keep_spans=pictures,
            progress=lambda now: show(now - first_s),
        )
    if not with_a_bound:
        return result
    with busy("bound"):
        bound = bound_for(jobs, options, policy)
    return with_bound(result, None if bound is None else bound.mean_jct_s)
