"""Reads a batch script with `#SBATCH` and `#DOVETAIL` lines as a job.

Directives precede the first command, as in Slurm. An option of Slurm that Dovetail cannot honour is
an error; an option that would not change the result is ignored with a warning.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.jobspec import values as read
from dovetail.jobspec.draft import JobDraft, parsing
from dovetail.jobspec.sbatch_counts import fill_counts, settle_tasks
from dovetail.jobspec.sbatch_lines import BatchScript, read_lines
from dovetail.jobspec.sbatch_options import DIRECT, FLAGS, IGNORED

NICE_DEFAULT = "100"
"""The value of --nice without one, as in Slurm."""
AHEAD_S_MAX = 65535
_NOT_HERE = ("command", "script")


def read_script(
    content: str, file: str, own: Mapping[str, str], now: datetime | None
) -> tuple[JobDraft, BatchScript]:
    """Returns the job of a batch script, and its directives with warnings. Raises InputError.

    `own` are the variables of the submitter, for --export=NAME; `now` is for --begin, --deadline.
    """
    if not content.startswith("#!"):
        raise InputError(
            f"{file}, line 1",
            "a batch script must begin with its interpreter",
            "as in #!/bin/bash; write a command after --, as in: submit -- python train.py",
        )
    script, draft = read_lines(content, file), JobDraft(file)
    draft.put("name", Path(file).name, file)
    draft.put("script_text", content, file)
    draft.put("slurm_variables", True, file)
    _fill(script, draft, own, now)
    for where, words in script.dovetail_lines:
        _parse_dovetail_line(draft, where, words, own)
    settle_tasks(script, draft)
    return draft, script


def _parse_dovetail_line(
    draft: JobDraft, where: str, words: Sequence[str], own: Mapping[str, str]
) -> None:
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not equals:
            raise InputError(where, f"'{word[:60]}' is not FIELD=VALUE", "as in gpus=1..4")
        if name in _NOT_HERE:
            raise InputError(where, f"a script cannot set the field '{name}'")
        draft.parse(name, value, where)
        if name == "environment":
            with parsing(where, name):
                draft.put(name, read.environment(value, own), where)


def _fill(
    script: BatchScript, draft: JobDraft, own: Mapping[str, str], now: datetime | None
) -> None:
    """Sets the fields of a job from the options of its script. Raises InputError."""
    if "," in script.value("partition"):
        raise InputError(
            script.where("partition"), "--partition lists several queues", "specify one"
        )
    for option, (value, where) in script.options.items():
        if option in DIRECT:
            draft.parse(DIRECT[option], value, where, called=f"--{option}")
        elif option in FLAGS:
            draft.parse(*FLAGS[option], where, called=f"--{option}")
        elif option in IGNORED:
            script.ignore(option, IGNORED[option])
    if "exclusive" in script.options:
        effect = "no other job shares its GPUs, but other jobs may use the rest of its nodes"
        script.note(script.where("exclusive"), f"--exclusive: {effect}")
    if "error" in script.options and script.value("error") != script.value("output"):
        script.ignore("error", "errors go to the output file")
    _fill_times(script, draft, now)
    _fill_signal(script, draft)
    _fill_export(script, draft, own)
    if "nice" in script.options:
        nice = script.value("nice") or NICE_DEFAULT
        priority = nice[1:] if nice.startswith("-") else f"-{nice}"
        draft.parse("priority", priority, script.where("nice"), called="--nice")
    fill_counts(script, draft)


def _fill_times(script: BatchScript, draft: JobDraft, now: datetime | None) -> None:
    for option in ("time", "begin", "deadline"):
        if option not in script.options:
            continue
        value, where = script.options[option]
        with parsing(where, f"--{option}"):
            if option == "time":
                # A limit of 0 means no limit in Slurm.
                limit_s = read.slurm_seconds(value) or float("inf")
                draft.put("time_limit", limit_s, where, called="--time")
            else:
                draft.put(option, read.seconds_until(value, now), where, called=f"--{option}")


def _fill_signal(script: BatchScript, draft: JobDraft) -> None:
    if "signal" not in script.options:
        return
    value, where = script.options["signal"]
    match = re.fullmatch(r"(?:[RB]{1,2}:)?(?:SIG)?(\w+)(?:@(\d{1,5}))?", value, re.ASCII)
    name = match[1] if match else ""
    number = int(name) if name.isdecimal() else getattr(signal, f"SIG{name}", 0)
    ahead_s = int(match[2] or 60) if match else 0
    if not 0 < number < signal.NSIG or ahead_s > AHEAD_S_MAX:
        raise InputError(where, "--signal must look like B:TERM@60", "with seconds after the @")
    draft.put("grace", float(ahead_s), where, called="--signal")
    if number != signal.SIGTERM:
        script.ignore(
            "signal", f"{name} is not sent: trap SIGTERM; SIGKILL follows after {ahead_s} s"
        )


def _fill_export(script: BatchScript, draft: JobDraft, own: Mapping[str, str]) -> None:
    if "export" not in script.options:
        return
    value, where = script.options["export"]
    parts: list[str] = re.findall(r"(?:[^,']|'[^']*')+", value)
    if "ALL" in parts:
        script.ignore(
            "export", "ALL: the environment is not copied; list the variables that the job needs"
        )
    variables = [part for part in parts if part not in ("ALL", "NONE", "NIL")]
    if variables:
        with parsing(where, "environment"):
            draft.put("environment", read.environment(",".join(variables), own), where)
