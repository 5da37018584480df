"""A batch script: the `#SBATCH` lines that mean something here, and `#DOVETAIL` lines beside them.

Directives stand before the first command, as for Slurm. What Slurm knows and Dovetail cannot keep
is refused; what has no effect on the result is ignored, and said to be.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from dovetail.core.errors import InputError, nearest
from dovetail.workload import job_words as read
from dovetail.workload.job_draft import JobDraft
from dovetail.workload.job_words import Gpus
from dovetail.workload.slurm_moment import seconds_until

SHORT = {
    "J": "job-name", "n": "ntasks", "N": "nodes", "G": "gpus", "t": "time", "a": "array",
    "d": "dependency", "o": "output", "e": "error", "D": "chdir", "p": "partition", "c":
    "cpus-per-task", "H": "hold", "A": "account", "q": "qos", "C": "constraint", "w": "nodelist",
    "x": "exclude", "L": "licenses", "k": "no-kill", "s": "oversubscribe", "b": "begin",
    "i": "input", "m": "distribution", "M": "clusters", "Q": "quiet", "v": "verbose", "S":
    "core-spec", "B": "extra-node-info", "F": "nodefile", "O": "overcommit", "W": "wait",
}  # fmt: skip
"""Slurm's short names."""

COUNTED = (
    "ntasks", "ntasks-per-node", "nodes", "gpus", "gpus-per-node", "gpus-per-task", "gres",
    "cpus-per-task", "cpus-per-gpu", "mem", "mem-per-cpu", "mem-per-gpu",
)  # fmt: skip
"""Options that together say how many GPUs, CPUs and bytes."""
DIRECT = {
    "job-name": "name", "array": "array", "output": "output", "chdir": "workdir",
    "partition": "queue", "dependency": "after", "priority": "priority",
}  # fmt: skip
"""Options that are one of our fields, word for word."""
FLAGS = {
    "hold": ("hold", "yes"), "requeue": ("requeue", "yes"), "no-requeue": ("requeue", "no"),
    "exclusive": ("shareable", "no"), "oversubscribe": ("shareable", "yes"),
}  # fmt: skip
"""Options without a value that set one of our fields."""
OTHER = ("time", "deadline", "signal", "export", "nice", "error")

IGNORED: Mapping[str, str] = {
    **dict.fromkeys(("mail-type", "mail-user"), "no mail is sent"),
    **dict.fromkeys(("account", "qos", "wckey"), "accounts and classes of service are not kept"),
    "comment": "it is not kept",
    **dict.fromkeys(
        ("cpu-bind", "gpu-bind", "mem-bind", "hint", "distribution", "threads-per-core",
         "ntasks-per-core", "ntasks-per-socket", "cores-per-socket", "sockets-per-node",
         "accel-bind", "cpu-freq", "gpu-freq", "core-spec", "profile", "acctg-freq", "overcommit"),
        "processes are not bound",
    ),
    **dict.fromkeys(("switches", "spread-job", "contiguous", "use-min-nodes"),
                    "the policy chooses the nodes"),
    **dict.fromkeys(("parsable", "quiet", "verbose"), "it concerns the answer of sbatch"),
    **dict.fromkeys(("get-user-env", "export-file", "propagate"), "no environment is copied"),
    "open-mode": "output is always appended",
    "no-kill": "a job goes on without a lost node if it can",
    "kill-on-invalid-dep": "a job whose dependency cannot be met waits until it is cancelled",
    "nodes": "the policy chooses the nodes",
}  # fmt: skip
"""Options without effect, and why; they take a value unless in `BARE`."""
BARE = frozenset(
    {*FLAGS, "parsable", "quiet", "verbose", "no-kill", "contiguous", "spread-job",
     "use-min-nodes", "overcommit", "get-user-env"}
)  # fmt: skip
"""Options that may stand without a value."""
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("nodelist", "exclude", "nodefile", "constraint", "prefer", "reservation",
                     "clusters", "extra-node-info", "mincpus", "gpus-per-socket"),
                    "the policy chooses the nodes; name a type of GPU in --gpus=TYPE:N"),
    "begin": "a job cannot be told to start later",
    "time-min": "time limits are not shortened",
    "licenses": "licenses are not counted",
    "wrap": "give the command to dovetail submit",
    "input": "a job has no input; let the script read the file",
    **dict.fromkeys(("container", "image", "oci"), "containers are not started"),
    "tmp": "disks are not counted",
    "ntasks-per-gpu": "one process runs on each GPU",
    "wait": "say it on the command line: dovetail submit --wait",
    "uid": "a job runs as its submitter",
    "gid": "a job runs as its submitter",
}  # fmt: skip
"""Options that would change what happens, and cannot be kept."""
KNOWN = frozenset({*COUNTED, *DIRECT, *FLAGS, *OTHER, *IGNORED, *REFUSED})

_NOT_HERE = ("command", "script")


@dataclass(slots=True)
class _Script:
    """The directives of one script, by option; of one given twice the last counts."""

    file: str
    said: dict[str, tuple[str, str]] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)

    def value(self, option: str, usual: str = "") -> str:
        return self.said[option][0] if option in self.said else usual

    def where(self, *options: str) -> str:
        return next((self.said[o][1] for o in options if o in self.said), self.file)

    def ignore(self, option: str, why: str) -> None:
        self.ignored.append(f"{self.where(option)}: --{option} has no effect: {why}")

    def whole(self, option: str, usual: int) -> int:
        try:
            return read.whole(self.said[option][0]) if option in self.said else usual
        except ValueError as error:
            raise InputError(self.where(option), f"--{option}: {error}") from None


def read_script(
    content: str, file: str, own: Mapping[str, str], now: datetime | None
) -> tuple[JobDraft, list[str]]:
    """Returns the job that a batch script describes, and what in it has no effect.

    `own` are the submitter's variables, for --export=NAME; `now` is for --deadline.
    """
    if not content.startswith("#!"):
        raise InputError(
            f"{file}, line 1",
            "a batch script begins with its interpreter",
            "as in #!/bin/bash; a command goes behind --, as in: submit -- python train.py",
        )
    script, draft = _Script(file), JobDraft(file)
    draft.put("name", Path(file).name, file)
    draft.put("script_text", content, file)
    ours = []
    for where, mark, words in _directives(content, file):
        if mark == "#SBATCH":
            _take(script, where, words)
        else:
            ours.append((where, words))
    _fill(script, draft, own, now)
    for where, words in ours:
        _take_ours(draft, where, words, own)
    return draft, script.ignored


def _directives(content: str, file: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yields (place, mark, words) of each directive before the first command."""
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            return
        match = re.match(r"(#SBATCH|#DOVETAIL)\s+(.*)", line)
        if match:
            where = f"{file}, line {number}"
            try:
                yield where, match[1], shlex.split(match[2], comments=True)
            except ValueError as error:
                raise InputError(where, f"the words cannot be parted: {error}") from None


def _take(script: _Script, where: str, words: Sequence[str]) -> None:
    """Takes the options of one line: `--name=value`, `--name value`, `-Nvalue`, `-N value`."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            option, equals, value = word[2:].partition("=")
            word = f"--{option}"
        elif word.startswith("-") and len(word) > 1:
            option, value = SHORT.get(word[1], word[1]), word[2:].removeprefix("=")
            equals = value
        else:
            raise InputError(where, f"'{word}' is no option", "options begin with - or --")
        if option not in KNOWN:
            raise InputError(where, f"unknown option '{word[:60]}'", nearest(option[:60], KNOWN))
        if option in REFUSED:
            raise InputError(where, f"--{option} is not supported", REFUSED[option])
        if not equals and option not in BARE:
            if not rest:
                raise InputError(where, f"--{option} needs a value")
            value = rest.pop(0)
        script.said[option] = (value, where)


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


def _fill(script: _Script, draft: JobDraft, own: Mapping[str, str], now: datetime | None) -> None:
    """Turns the options of a script into fields."""
    for option, name in DIRECT.items():
        if option in script.said:
            draft.say(name, script.value(option), script.where(option))
    for option, (name, said) in FLAGS.items():
        if option in script.said:
            draft.say(name, said, script.where(option))
    for option in script.said:
        if option in IGNORED:
            script.ignore(option, IGNORED[option])
    if "error" in script.said and script.value("error") != script.value("output"):
        script.ignore("error", "errors go where the output goes")
    _fill_times(script, draft, now)
    _fill_export(script, draft, own)
    if "nice" in script.said:
        said = script.value("nice")
        draft.say(
            "priority", said[1:] if said.startswith("-") else f"-{said}", script.where("nice")
        )
    _fill_counts(script, draft)


def _fill_times(script: _Script, draft: JobDraft, now: datetime | None) -> None:
    try:
        if "time" in script.said:
            limit = read.slurm_seconds(script.value("time"))
            # Slurm takes a limit of 0 for none.
            draft.put("time_limit", limit or float("inf"), script.where("time"))
        if "deadline" in script.said:
            draft.put(
                "deadline", seconds_until(script.value("deadline"), now), script.where("deadline")
            )
    except ValueError as error:
        raise InputError(script.where("time", "deadline"), str(error)) from None
    if "signal" in script.said:
        name, at, ahead = script.value("signal").rpartition(":")[2].partition("@")
        if not re.fullmatch(r"(SIG)?[A-Z]+[0-9]*|\d+", name) or (at and not ahead.isdecimal()):
            raise InputError(
                script.where("signal"), "--signal is not as in B:TERM@60", "seconds follow the @"
            )
        draft.put("grace", float(ahead or 60), script.where("signal"))
        if name.removeprefix("SIG") not in ("TERM", "15"):
            script.ignore("signal", f"{name} is not sent: SIGTERM is, that many seconds ahead")


def _fill_export(script: _Script, draft: JobDraft, own: Mapping[str, str]) -> None:
    if "export" not in script.said:
        return
    where, said = script.where("export"), script.value("export")
    named: list[str] = re.findall(r"(?:[^,']|'[^']*')+", said)
    if "ALL" in named:
        script.ignore("export", "ALL: no environment is copied, name the variables you need")
    kept = [part for part in named if part not in ("ALL", "NONE", "NIL")]
    if kept:
        draft.put("environment", _environment(",".join(kept), where, own), where)


def _fill_counts(script: _Script, draft: JobDraft) -> None:
    """Works out GPUs, CPUs and memory of the whole job: one process runs on each GPU."""
    nodes, kind, counts = _nodes(script), "", dict[str, int]()
    tasks = script.whole("ntasks", 0) or script.whole("ntasks-per-node", 0) * nodes
    for option, times in (
        ("gpus", 1), ("gpus-per-node", nodes), ("gres", nodes), ("gpus-per-task", max(tasks, 1)),
    ):  # fmt: skip
        if option in script.said:
            kind, gpus = _typed_count(script, option)
            counts[option] = gpus * times
            if kind:
                draft.say("gpu_type", kind, script.where(option))
    if tasks:
        counts["ntasks" if "ntasks" in script.said else "ntasks-per-node"] = tasks
    if len(set(counts.values())) > 1:
        said = ", ".join(f"--{o} means {n}" for o, n in counts.items())
        raise InputError(
            script.where(*reversed(counts)),
            f"one process runs on each GPU, but {said}",
            "make them agree, or leave one out",
        )
    option, gpus = next(iter(counts.items()), ("nodes", nodes))
    if gpus < 1:
        raise InputError(script.where(option), f"--{option}: every job needs a GPU")
    draft.put("gpus", Gpus(gpus, gpus, gpus), script.where(option))
    _fill_host(script, draft, gpus=gpus, nodes=nodes)


def _nodes(script: _Script) -> int:
    said = script.value("nodes", "1")
    if not said.isdecimal() or int(said) < 1:
        raise InputError(script.where("nodes"), "--nodes is one number of 1 or more")
    return int(said)


def _typed_count(script: _Script, option: str) -> tuple[str, int]:
    """Returns the type and the count of `2`, `a100:2`, or of --gres `gpu:2`, `gpu:a100:2`."""
    said, where = script.value(option), script.where(option)
    parts = said.split(":")
    if option == "gres":
        if parts[0] != "gpu" or "," in said:
            raise InputError(where, f"--gres={said} is not supported", "as in gpu:2 or gpu:a100:2")
        parts = parts[1:] or ["1"]
    kind, count = (parts[0], parts[1]) if len(parts) == 2 else ("", parts[0])
    if option == "gres" and len(parts) == 1 and not count.isdecimal():
        kind, count = parts[0], "1"
    if len(parts) > 2 or not count.isdecimal():
        raise InputError(where, f"--{option}={said} is no number of GPUs", "as in 2 or a100:2")
    return kind, int(count)


def _fill_host(script: _Script, draft: JobDraft, *, gpus: int, nodes: int) -> None:
    cpus = script.whole("cpus-per-task", 0) or script.whole("cpus-per-gpu", 0)
    if cpus:
        draft.put("cpus", float(cpus * gpus), script.where("cpus-per-task", "cpus-per-gpu"))
    for option, times in (("mem", nodes), ("mem-per-cpu", cpus * gpus), ("mem-per-gpu", gpus)):
        if option not in script.said:
            continue
        try:
            size = read.size_bytes(script.value(option), usual="M")
        except ValueError as error:
            raise InputError(script.where(option), f"--{option}: {error}") from None
        if option == "mem-per-cpu" and not cpus:
            raise InputError(script.where(option), "--mem-per-cpu needs --cpus-per-task")
        draft.put("memory", size * times, script.where(option))
    if "nodes" in script.said and nodes == gpus == 1:
        script.ignored[:] = [line for line in script.ignored if " --nodes " not in line]
