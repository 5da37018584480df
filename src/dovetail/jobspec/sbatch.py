"""A batch script: the `#SBATCH` lines that mean something here, and `#DOVETAIL` lines beside them.

Directives stand before the first command, as for Slurm. What Slurm knows and Dovetail cannot keep
is refused; what has no effect on the result is ignored, and said to be.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.jobspec import values as read
from dovetail.jobspec.draft import JobDraft
from dovetail.jobspec.moment import seconds_until
from dovetail.jobspec.sbatch_counts import fill_counts, settle_tasks
from dovetail.jobspec.sbatch_lines import BatchScript, read_lines
from dovetail.jobspec.sbatch_options import DIRECT, FLAGS, IGNORED

NICE_USUAL = "100"
"""How much less important --nice alone makes a job."""
AHEAD_S_MAX = 65535
_NOT_HERE = ("command", "script")


def read_script(
    content: str, file: str, own: Mapping[str, str], now: datetime | None
) -> tuple[JobDraft, BatchScript]:
    """Returns the job that a batch script describes, and its lines with what is to be said of them.

    `own` are the submitter's variables, for --export=NAME; `now` is for --begin and --deadline.
    """
    if not content.startswith("#!"):
        raise InputError(
            f"{file}, line 1",
            "a batch script begins with its interpreter",
            "as in #!/bin/bash; a command goes behind --, as in: submit -- python train.py",
        )
    script, draft = read_lines(content, file), JobDraft(file)
    draft.put("name", Path(file).name, file)
    draft.put("script_text", content, file)
    draft.put("slurm_variables", True, file)
    _fill(script, draft, own, now)
    for where, words in script.ours:
        _take_ours(draft, where, words, own)
    settle_tasks(script, draft)
    return draft, script


def _take_ours(draft: JobDraft, where: str, words: Sequence[str], own: Mapping[str, str]) -> None:
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not equals:
            raise InputError(where, f"'{word[:60]}' is no FIELD=VALUE", "as in gpus=1..4")
        if name in _NOT_HERE:
            raise InputError(where, f"a script has no field '{name}'")
        draft.say(name, value, where)
        if name == "environment":
            draft.put(name, _environment(value, where, own), where)


def _environment(said: str, where: str, own: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    try:
        return read.environment(said, own)
    except ValueError as error:
        raise InputError(where, f"environment: {error}") from None


def _fill(
    script: BatchScript, draft: JobDraft, own: Mapping[str, str], now: datetime | None
) -> None:
    """Turns the options of a script into fields."""
    if "," in script.value("partition"):
        raise InputError(script.where("partition"), "--partition names several", "name one")
    for option, (value, where) in script.said.items():
        if option in DIRECT:
            draft.say(DIRECT[option], value, where, called=f"--{option}")
        elif option in FLAGS:
            draft.say(*FLAGS[option], where, called=f"--{option}")
        elif option in IGNORED:
            script.ignore(option, IGNORED[option])
    if "exclusive" in script.said:
        said = "nobody shares the GPUs of the job; the rest of its nodes is open to others"
        script.note(script.where("exclusive"), f"--exclusive: {said}")
    if "error" in script.said and script.value("error") != script.value("output"):
        script.ignore("error", "errors go where the output goes")
    _fill_times(script, draft, now)
    _fill_signal(script, draft)
    _fill_export(script, draft, own)
    if "nice" in script.said:
        said = script.value("nice") or NICE_USUAL
        less = said[1:] if said.startswith("-") else f"-{said}"
        draft.say("priority", less, script.where("nice"), called="--nice")
    fill_counts(script, draft)


def _fill_times(script: BatchScript, draft: JobDraft, now: datetime | None) -> None:
    for option in ("time", "begin", "deadline"):
        if option not in script.said:
            continue
        value, where = script.said[option]
        try:
            if option == "time":
                # Slurm takes a limit of 0 for none.
                limit_s = read.slurm_seconds(value) or float("inf")
                draft.put("time_limit", limit_s, where, called="--time")
            else:
                draft.put(option, seconds_until(value, now), where, called=f"--{option}")
        except ValueError as error:
            raise InputError(where, f"--{option}: {error}") from None


def _fill_signal(script: BatchScript, draft: JobDraft) -> None:
    if "signal" not in script.said:
        return
    value, where = script.said["signal"]
    found = re.fullmatch(r"(?:[RB]{1,2}:)?(?:SIG)?(\w+)(?:@(\d{1,5}))?", value, re.ASCII)
    name = found[1] if found else ""
    number = int(name) if name.isdecimal() else getattr(signal, f"SIG{name}", 0)
    ahead_s = int(found[2] or 60) if found else 0
    if not 0 < number < signal.NSIG or ahead_s > AHEAD_S_MAX:
        raise InputError(where, "--signal is not as in B:TERM@60", "seconds follow the @")
    draft.put("grace", float(ahead_s), where, called="--signal")
    if number != signal.SIGTERM:
        script.ignore("signal", f"{name} is not sent: trap SIGTERM, SIGKILL is {ahead_s} s later")


def _fill_export(script: BatchScript, draft: JobDraft, own: Mapping[str, str]) -> None:
    if "export" not in script.said:
        return
    said, where = script.said["export"]
    named: list[str] = re.findall(r"(?:[^,']|'[^']*')+", said)
    if "ALL" in named:
        script.ignore("export", "ALL: no environment is copied, name the variables you need")
    kept = [part for part in named if part not in ("ALL", "NONE", "NIL")]
    if kept:
        draft.put("environment", _environment(",".join(kept), where, own), where)
