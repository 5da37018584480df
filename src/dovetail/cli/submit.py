"""`dovetail submit`: submits a batch script, a YAML file or a command to the live cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.cli.cluster_options import INTERRUPTED, asks_a_cluster, client_of, counted
from dovetail.cli.job_options import JobCommand, job_options, spec_file_of
from dovetail.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.jobspec.files import SpecFile
    from dovetail.live.client.client import Client
    from dovetail.live.server.messages.tracking import JobState


@click.command("submit", cls=JobCommand)
@click.argument("words", nargs=-1, metavar="[FILE [ARGUMENTS]...] [-- COMMAND...]")
@job_options
@click.option(
    "--ntasks", "-n", help="Number of processes, which divide the GPUs among them. [default: 1]"
)
@click.option("--array", "-a", help="Task indices of an array job, e.g. 0-9, 1,3,5-7 or 0-99%4.")
@click.option("--output", "-o", help="Output file; %j is replaced by the job's number.")
@click.option("--trains", is_flag=True, help="The program uses dovetail.train.")
@click.option(
    "--elastic",
    metavar="restart[:COST]",
    help="It has checkpoints of its own: restart it to change its GPUs. COST: e.g. 45s.",
)
@click.option("--shareable", is_flag=True, help="Allow another job on the same GPUs.")
@click.option("--hold", "-H", is_flag=True, help="Submit the job held; `dovetail release` ends it.")
@click.option(
    "--wait", "-W", is_flag=True, help="Wait for the job to end; exit with 0 if it completed."
)
@click.option("--test-only", is_flag=True, help="Validate the job without submitting it.")
@click.option("--parsable", is_flag=True, help="Print only the job numbers.")
@asks_a_cluster
def submit(
    home: Path,
    as_json: bool,
    words: tuple[str, ...],
    fields: tuple[str, ...],
    env: tuple[str, ...],
    wait: bool,
    test_only: bool,
    parsable: bool,
    **option_values: str | bool | None,
) -> int:
    """Submit a job: a batch script with #SBATCH lines, a YAML file (.yaml, .yml), or a command.

    The job runs as one process that sees all its GPUs, or with --ntasks N as N processes with the
    environment variables of torchrun. A range of GPUs is for programs that use dovetail.train:
    the first worker starts alone, the others once it has created its dovetail.train.Job. With
    --elastic restart it is for any other that goes on from its own checkpoint: one process per
    GPU, or torchrun once per node, gets SIGTERM and starts anew when the GPUs change.

    Options override the file. ARGUMENTS are passed to the script; write those that look like
    options after --. FILE - reads a script from standard input. Submitted jobs are on disk when
    the command returns.

    \b
    Example:
      dovetail submit train.sh --gpus 2 --time 2:00:00
      dovetail submit job.yaml --wait
      dovetail submit --gpus 1..4 -- python train.py
      dovetail submit --gpus 1..4 --elastic restart -- torchrun train.py
    """
    if parsable and as_json:
        raise InputError("--parsable", "--json prints the numbers already", "leave one out")
    spec_file = spec_file_of(words, option_values, fields, env)
    client = _client_for(spec_file, home)
    numbers = () if test_only else client.submit(*spec_file.submissions)
    _print_warnings(spec_file)
    if not as_json:
        _print_submitted(spec_file, numbers, parsable=parsable)
    summary = {"jobs": numbers, "ignored": spec_file.ignored, "notes": spec_file.notes}
    try:
        ended = client.wait(*numbers) if wait and numbers else None
    except KeyboardInterrupt:
        if as_json:
            click.echo(json.dumps(summary))
        click.echo("\ndovetail: stopped waiting; the submitted jobs continue", err=True)
        return INTERRUPTED
    if as_json:
        from dovetail.live.server.protocol import json_values

        ends = {} if ended is None else {"ended": [json_values(job) for job in ended]}
        click.echo(json.dumps(summary | ends))
    elif not parsable:
        _print_ended(client, spec_file, ended or ())
    return int(any(job.state != "COMPLETED" for job in ended or ()))


def _print_warnings(spec_file: SpecFile) -> None:
    for line in spec_file.ignored:
        click.echo(f"ignored: {line}", err=True)
    for line in spec_file.notes:
        click.echo(f"note: {line}", err=True)


def _print_ended(client: Client, spec_file: SpecFile, ended: Sequence[JobState]) -> None:
    """Prints how the jobs ended, with the remark of the cluster on GPUs that a job did not use."""
    for job in ended:
        code = "" if job.exit_code is None else f" (exit code {job.exit_code})"
        click.echo(f"job {job.called} is {job.state}{code}")
    trains = any(submission.spec.trains for submission in spec_file.submissions)
    for job in ended if trains else ():
        detail = client.show(job.called).detail if job.state == "COMPLETED" else ""
        if detail:
            click.echo(f"job {job.called}: {detail}")


def _client_for(spec_file: SpecFile, home: Path) -> Client:
    """Returns the client of a cluster. Raises InputError for an output in the cluster's folder."""
    specs = [s.spec for s in spec_file.submissions if s.spec.output]
    if specs:
        from dovetail.live.store.job_output import check_output

        for spec in specs:
            check_output(f"job '{spec.name}'", spec, home.expanduser())
    return client_of(home)


def _print_submitted(spec_file: SpecFile, numbers: tuple[int, ...], *, parsable: bool) -> None:
    for number, submission in zip(numbers, spec_file.submissions, strict=False):
        tasks = f" ({len(submission.array)} tasks)" if submission.array else ""
        click.echo(str(number) if parsable else f"job {number} is submitted{tasks}")
    if not numbers:
        jobs = sum(len(submission.array) or 1 for submission in spec_file.submissions)
        click.echo(f"{counted(jobs, 'job')} can be read; nothing was submitted")
