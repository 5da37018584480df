"""What commands that submit a job share: the options of a job, and how they become its spec."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from dovetail.core.errors import InputError

if TYPE_CHECKING:
    from dovetail.jobspec.files import SpecFile

F = TypeVar("F", bound=Callable[..., object])
COMMAND_KEY = "dovetail.cli.job_options.command"
"""The key in click's context of the words after `--`."""


UNLIKE = ("--home", "--json", "--qos")
"""Options that are so short that many words look like them."""


class JobCommand(click.Command):
    """A click command that leaves the words after `--` to the job, even if they are options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the words before `--`. Raises InputError with advice for an option of sbatch."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[COMMAND_KEY] = tuple(args[at + 1 :])
        try:
            return super().parse_args(ctx, args[:at])
        except click.NoSuchOption as error:
            from dovetail.jobspec.sbatch_options import instead

            what, option = f"{ctx.info_name} has no such option", error.option_name
            near = [name for name in error.possibilities or () if name not in UNLIKE]
            raise InputError(option, what, instead(option, near)) from None


JOB_OPTIONS = (
    click.option("--gpus", "-G", help="GPUs, TYPE:GPUS, or a range for an elastic job, e.g. 1..4."),
    click.option(
        "--time", "-t", "time_limit", help="Time limit: minutes, 90s, 30m, 1:30:00, 2-12."
    ),
    click.option("--name", "--job-name", "-J", "name", help="Name of the job."),
    click.option("--dependency", "-d", "after", help="E.g. afterok:12 or afterany:12:13_2."),
    click.option("--begin", "-b", help="Earliest start, e.g. 2h, now+2hours or 16:00."),
    click.option("--chdir", "-D", "workdir", help="Working directory of the job."),
    click.option("--partition", "-p", "queue", help="Queue of the job."),
    click.option(
        "--topology", help="Level where all its GPUs meet: island, node, or rack? for a wish."
    ),
    click.option("--account", "-A", help="Account that the job is charged to."),
    click.option("--qos", "-q", help="Quality of service of the job."),
    click.option("--reservation", help="Reservation whose nodes the job uses."),
    click.option(
        "--container-image", metavar="IMAGE", help="Run it in a container: an image's name or path."
    ),
    click.option(
        "--container-mounts",
        metavar="SRC:DST[:ro],...",
        help="What of the node the container sees, besides the working directory.",
    ),
    click.option("--model", help="Model the job trains: a name of `dovetail models`, or your own."),
    click.option(
        "--set", "fields", multiple=True, help="FIELD=VALUE, for any field of a YAML spec."
    ),
    click.option("--env", multiple=True, help="NAME=VALUE, or NAME to pass its value on."),
)
"""What every job may ask for."""


def job_options(command: F) -> F:
    """Adds the options that say what a job asks for and whose it is, in order."""
    for option in reversed(JOB_OPTIONS):
        command = option(command)
    return command


def spec_file_of(
    words: tuple[str, ...],
    option_values: dict[str, str | bool | None],
    fields: tuple[str, ...],
    env: tuple[str, ...],
) -> SpecFile:
    """Returns the jobs to submit, from FILE or from the command after `--`.

    The `fields` of `--set` override those of other options. Raises UsageError without a file and a
    command, and InputError.
    """
    from dovetail.jobspec.files import YAML_SUFFIXES, Submitter, read_command, read_spec

    set_fields, environment = _fields(fields), _environment(env)
    context = click.get_current_context()
    command = context.meta[COMMAND_KEY]
    if not words and not command:
        raise click.UsageError("Missing FILE, or -- and a command")
    now = datetime.now().astimezone()
    overrides = _overrides(option_values, set_fields, now)
    options = {
        p.name: p.opts[0]
        for p in context.command.params
        if p.name and p.opts[0].startswith("--") and p.name not in set_fields
    }
    is_yaml = bool(words) and words[0].endswith(YAML_SUFFIXES)
    # Unless it says otherwise, a program that can resize uses dovetail.train. A YAML file says so.
    ranged = ".." in overrides.get("gpus", "") and not is_yaml
    submitter = Submitter(Path.cwd(), overrides, environment, os.environ, now, options, ranged)
    if words:
        path = Path("/dev/stdin" if words[0] == "-" else words[0])
        if not path.exists() and not path.suffix:
            mend = "write a command after --, as in: submit -- python x.py"
            raise InputError(words[0], "there is no such file", mend)
        spec_file = read_spec(path, submitter, (*words[1:], *command))
    else:
        spec_file = read_command(command, submitter)
    return _with_note(spec_file) if ranged else spec_file


def _with_note(spec_file: SpecFile) -> SpecFile:
    """Returns the jobs, with a note if a range of GPUs is specified for another kind of program."""
    spec = spec_file.submissions[0].spec
    if not spec.trains or "python" in spec.script + " ".join(spec.command):
        return spec_file
    note = (
        "a range of GPUs is for programs that use dovetail.train: any other program runs once, on"
        " one GPU, and its other GPUs stay idle (specify one number of GPUs)"
    )
    return replace(spec_file, notes=(*spec_file.notes, note))


def _overrides(
    option_values: dict[str, str | bool | None], set_fields: dict[str, str], now: datetime
) -> dict[str, str]:
    """Returns the fields of the command line, with Slurm's forms of options converted."""
    values = {name: value for name, value in option_values.items() if value or value == ""}
    fields = {name: "yes" if value is True else str(value) for name, value in values.items()}
    gpu_type, colon, gpus = fields.get("gpus", "").partition(":")
    if colon:
        fields |= {"gpus": gpus, "gpu_type": gpu_type}
    if "time_limit" in fields and "time_limit" not in set_fields:
        fields["time_limit"] = _limit(fields["time_limit"])
    fields |= set_fields
    if "begin" in fields:
        fields["begin"] = _begin(fields["begin"], now)
    return fields


def _limit(text: str) -> str:
    """Returns a time limit of Slurm or with units as a field value. Raises InputError."""
    from dovetail.jobspec.draft import parsing
    from dovetail.jobspec.values import limit_seconds

    with parsing("command line", "--time"):
        limit_s = limit_seconds(text)
    return "unlimited" if limit_s == float("inf") else f"{limit_s:.3f}s"


def _begin(text: str, now: datetime) -> str:
    """Returns a time of day as a duration from now, a duration as it is. Raises InputError."""
    from dovetail.jobspec.values import seconds_until, span

    with suppress(ValueError):
        span(text)
        return text
    try:
        return f"{seconds_until(text, now):.3f}s"
    except ValueError as error:
        raise InputError("--begin", str(error), "or a duration, as in 2h") from None


def _fields(assignments: tuple[str, ...]) -> dict[str, str]:
    """Returns the fields set by `--set`. Raises InputError."""
    fields = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise InputError(f"--set {assignment}", "it has no value", "as in --set retries=0")
        fields[name.replace("-", "_")] = value
    return fields


def _environment(assignments: tuple[str, ...]) -> dict[str, str]:
    """Returns the variables set by `--env`. Raises InputError."""
    variables = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals and name not in os.environ:
            raise InputError(f"--env {name}", "the variable is not set", "specify NAME=VALUE")
        variables[name] = value if equals else os.environ[name]
    return variables
