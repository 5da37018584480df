"""How many GPUs, CPUs and bytes a batch script asks for, counted for the whole job.

One process runs on each GPU, so all that is said of GPUs and tasks must come to one number.
"""

from __future__ import annotations

import re

from dovetail.core.errors import InputError
from dovetail.workload import job_words as read
from dovetail.workload.job_draft import JobDraft
from dovetail.workload.job_words import Gpus
from dovetail.workload.sbatch_lines import Script

MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")
CPUS = ("cpus-per-task", "cpus-per-gpu")


def fill_counts(script: Script, draft: JobDraft) -> None:
    """Works out GPUs, CPUs and memory of the job. Raises InputError."""
    for options in (MEMORY, CPUS):
        said = [f"--{option}" for option in options if option in script.said]
        if len(said) > 1:
            where = script.where(*(o for o in reversed(options) if o in script.said))
            raise InputError(where, f"{' and '.join(said)} exclude each other", "say one of them")
    nodes = _nodes(script)
    tasks = script.at_least_one("ntasks", 0)
    tasks = tasks or script.at_least_one("ntasks-per-node", 0) * nodes
    gpus = _gpus(script, draft, nodes, tasks)
    draft.put("gpus", Gpus(gpus, gpus, gpus), _gpus_at(script))
    _fill_host(script, draft, gpus=gpus, nodes=nodes)
    _note_copies(script, gpus, tasks)


def _gpus(script: Script, draft: JobDraft, nodes: int, tasks: int) -> int:
    counts = dict[str, int]()
    for option, times in (
        ("gpus", 1), ("gpus-per-node", nodes), ("gres", nodes), ("gpus-per-task", max(tasks, 1)),
    ):  # fmt: skip
        if option in script.said:
            kind, gpus = _typed_count(script, option)
            counts[option] = gpus * times
            if kind:
                draft.say("gpu_type", kind, script.where(option), called=f"--{option}")
    if tasks:
        counts["ntasks" if "ntasks" in script.said else "ntasks-per-node"] = tasks
    if len(set(counts.values())) > 1:
        said = ", ".join(f"--{o} means {n}" for o, n in counts.items())
        mend = "make them agree, or leave one out"
        if script.starter[0]:
            mend = f"leave out the tasks, and {script.starter[0]}: call the program itself"
        raise InputError(
            script.where(*reversed(counts)), f"one process runs on each GPU, but {said}", mend
        )
    option, gpus = next(iter(counts.items()), ("nodes", nodes))
    if gpus < 1:
        raise InputError(script.where(option), f"--{option}: every job needs a GPU")
    return gpus


def _gpus_at(script: Script) -> str:
    return script.where("gpus", "gpus-per-node", "gres", "gpus-per-task", "ntasks", "nodes")


def _nodes(script: Script) -> int:
    said = script.value("nodes", "1")
    least, _, most = said.partition("-")
    if not re.fullmatch(r"\d{1,9}", least, re.ASCII) or most not in ("", least) or not int(least):
        raise InputError(
            script.where("nodes"),
            "--nodes is one number of 1 or more",
            "the policy chooses the nodes; say how many GPUs",
        )
    return int(least)


def _typed_count(script: Script, option: str) -> tuple[str, int]:
    """Returns the type and the count of `2`, `a100:2`, or of --gres `gpu:2`, `gpu:a100:2`."""
    said, where = script.value(option), script.where(option)
    parts = said.removeprefix("gres:").removeprefix("gres/").split(":")
    if option == "gres":
        if parts[0] != "gpu" or "," in said:
            raise InputError(where, f"--gres={said} is not supported", "as in gpu:2 or gpu:a100:2")
        parts = parts[1:] or ["1"]
    kind, count = (parts[0], parts[1]) if len(parts) == 2 else ("", parts[0])
    if option == "gres" and len(parts) == 1 and not count.isdecimal():
        kind, count = parts[0], "1"
    if len(parts) > 2 or not re.fullmatch(r"\d{1,9}", count, re.ASCII):
        raise InputError(where, f"--{option}={said} is no number of GPUs", "as in 2 or a100:2")
    return kind, int(count)


def _fill_host(script: Script, draft: JobDraft, *, gpus: int, nodes: int) -> None:
    cpus = script.at_least_one("cpus-per-task", 0) or script.at_least_one("cpus-per-gpu", 0)
    if cpus:
        draft.put("cpus", float(cpus * gpus), script.where(*CPUS))
    for option, times in (("mem", nodes), ("mem-per-cpu", cpus * gpus), ("mem-per-gpu", gpus)):
        if option not in script.said:
            continue
        try:
            size = read.size_bytes(script.value(option), usual="M")
        except ValueError as error:
            raise InputError(script.where(option), f"--{option}: {error}") from None
        if option == "mem-per-cpu" and not cpus:
            raise InputError(script.where(option), "--mem-per-cpu needs --cpus-per-task")
        if not size:
            script.ignore(option, "0 is all memory of a node for Slurm; here none is counted")
        draft.put("memory", size * times, script.where(option), called=f"--{option}")
    if "nodes" in script.said and nodes == gpus == 1:
        script.ignored[:] = [line for line in script.ignored if " --nodes " not in line]


def _note_copies(script: Script, gpus: int, tasks: int) -> None:
    """Says that a script runs more than once, where its owner may not know."""
    starter, where = script.starter
    if starter == "srun" or (starter and gpus > 1):
        script.note(where, f"leave out {starter}: the script runs once on each GPU, as it is")
    elif gpus > 1 and not tasks and "gpus-per-task" not in script.said:
        script.note(_gpus_at(script), f"the script runs {gpus} times, once on each GPU")
