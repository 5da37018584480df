"""The options of Slurm's `sbatch`: which mean something here, which have no effect, which are
refused, and what to do instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SHORT = {
    "J": "job-name", "n": "ntasks", "N": "nodes", "G": "gpus", "t": "time", "a": "array",
    "d": "dependency", "o": "output", "e": "error", "D": "chdir", "p": "partition", "c":
    "cpus-per-task", "H": "hold", "A": "account", "q": "qos", "C": "constraint", "w": "nodelist",
    "x": "exclude", "L": "licenses", "k": "no-kill", "s": "oversubscribe", "b": "begin",
    "i": "input", "m": "distribution", "M": "clusters", "Q": "quiet", "v": "verbose", "S":
    "core-spec", "B": "extra-node-info", "F": "nodefile", "O": "overcommit", "W": "wait",
    "I": "immediate",
}  # fmt: skip
"""Slurm's short names."""
ALIAS = {
    "tasks-per-node": "ntasks-per-node", "workdir": "chdir", "share": "oversubscribe",
    "mem_bind": "mem-bind", "cpu_bind": "cpu-bind", "gid": "uid",
}  # fmt: skip
"""Other names of options, most of them older."""

COUNTED = (
    "ntasks", "ntasks-per-node", "nodes", "gpus", "gpus-per-node", "gpus-per-task", "gres",
    "cpus-per-task", "cpus-per-gpu", "mem", "mem-per-cpu", "mem-per-gpu",
)  # fmt: skip
"""Options that together say how many GPUs, CPUs and bytes."""
DIRECT = {
    "job-name": "name", "array": "array", "output": "output", "chdir": "workdir",
    "partition": "queue", "dependency": "after", "priority": "priority",
    "kill-on-invalid-dep": "kill_on_invalid_dep",
}  # fmt: skip
"""Options that are one of our fields, word for word."""
FLAGS = {
    "hold": ("hold", "yes"), "requeue": ("requeue", "yes"), "no-requeue": ("requeue", "no"),
    "exclusive": ("shareable", "no"), "oversubscribe": ("shareable", "yes"),
}  # fmt: skip
"""Options without a value that set one of our fields."""
OTHER = ("time", "begin", "deadline", "signal", "export", "nice", "error")

IGNORED: Mapping[str, str] = {
    **dict.fromkeys(("mail-type", "mail-user"), "no mail is sent"),
    **dict.fromkeys(("account", "qos", "wckey"), "accounts and classes of service are not kept"),
    "comment": "it is not kept",
    **dict.fromkeys(
        ("cpu-bind", "gpu-bind", "mem-bind", "hint", "distribution", "threads-per-core",
         "ntasks-per-core", "ntasks-per-socket", "cores-per-socket", "sockets-per-node",
         "accel-bind", "core-spec", "thread-spec", "overcommit", "gres-flags"),
        "processes are not bound",
    ),
    **dict.fromkeys(("cpu-freq", "gpu-freq", "power"), "clocks are not set"),
    **dict.fromkeys(("profile", "acctg-freq"), "nothing is sampled"),
    **dict.fromkeys(("reboot", "delay-boot", "wait-all-nodes"), "nodes are not booted"),
    **dict.fromkeys(("switches", "spread-job", "contiguous", "use-min-nodes"),
                    "the policy chooses the nodes"),
    **dict.fromkeys(("parsable", "quiet", "verbose"), "it concerns the answer of sbatch"),
    **dict.fromkeys(("get-user-env", "export-file", "propagate"), "no environment is copied"),
    "open-mode": "output is always appended",
    "ignore-pbs": "no other directives are read",
    "no-kill": "a job goes on without a lost node if it can",
    "nodes": "the policy chooses the nodes",
}  # fmt: skip
"""Options without effect, and why; they take a value unless in `BARE`."""
BARE = frozenset(
    {*FLAGS, "parsable", "quiet", "verbose", "no-kill", "contiguous", "spread-job", "reboot",
     "use-min-nodes", "overcommit", "get-user-env", "ignore-pbs", "nice"}
)  # fmt: skip
"""Options that may stand without a value."""
NO_VALUE = ("hold", "requeue", "no-requeue", "oversubscribe")
"""Options that take none."""
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("nodelist", "exclude", "nodefile", "constraint", "prefer", "reservation",
                     "clusters", "cluster-constraint", "batch", "extra-node-info", "mincpus",
                     "gpus-per-socket"),
                    "the policy chooses the nodes; name a type of GPU in --gpus=TYPE:N"),
    "time-min": "time limits are not shortened; say the shortest in --time",
    "licenses": "licenses are not counted; --array=0-9%2 limits how many tasks run at once",
    "wrap": "give the command to dovetail submit, behind --",
    "input": "a job has no input; let the script read the file",
    **dict.fromkeys(("container", "image", "oci"),
                    "containers are not started; let the script start one"),
    **dict.fromkeys(("tmp", "bb", "bbf"), "disks are not counted; let the script look for room"),
    "network": "networks are not set up; leave it out",
    "mcs-label": "jobs have no labels; leave it out",
    "ntasks-per-gpu": "say the number of tasks, as in --ntasks=4",
    "wait": "say it on the command line: dovetail submit --wait",
    "test-only": "say it on the command line: dovetail submit --test-only",
    "immediate": "a job waits until there is room; dovetail top --once shows what is free",
    "uid": "a job runs as its submitter; leave it out",
}  # fmt: skip
"""Options that would change what happens, and cannot be kept; and what to do instead."""
KNOWN = frozenset({*COUNTED, *DIRECT, *FLAGS, *OTHER, *IGNORED, *REFUSED, *ALIAS})


def option_of(word: str) -> str:
    """Returns the full name of an option as Slurm understands it, empty if there is none.

    As for Slurm the beginning of a name is enough where only one begins so.
    """
    name = SHORT.get(word[1:2], "") if not word.startswith("--") else word[2:]
    if name and name not in KNOWN:
        begins = [known for known in KNOWN if known.startswith(name)]
        name = begins[0] if len(begins) == 1 and len(name) > 2 else ""
    return ALIAS.get(name, name)


def near(word: str) -> str:
    """Returns a hint for a word that is no option."""
    import difflib  # asked for by mistakes alone, and every submit imports this file

    close = difflib.get_close_matches(word.lstrip("-"), sorted(KNOWN), n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return "leave it out, or say what you need in a field of docs/reference/job-spec.md"


def instead(word: str, likely: Sequence[str]) -> str:
    """Returns what to do instead of an option of sbatch that `dovetail submit` does not have.

    `likely` are options it has that are spelt like that.
    """
    option = option_of(word)
    if option.startswith("mem"):
        return "for the whole job: --set memory=16G"
    if option.startswith("cpus"):
        return "for the whole job: --set cpus=8"
    if option in (*COUNTED, "nodes"):
        return "say how many GPUs, as in --gpus 4, and tasks, as in --ntasks 4"
    if option == "wrap":
        return "a command goes behind --, as in: submit -- python train.py"
    if option == "export":
        return "as in --env NAME=VALUE, or --env NAME"
    if option in DIRECT or option in FLAGS:
        return f"as in --set {DIRECT.get(option) or '='.join(FLAGS[option])}"
    if option in REFUSED or option in IGNORED:
        return REFUSED.get(option) or f"leave it out: {IGNORED[option]}"
    if option in KNOWN:
        return "write it as #SBATCH in the script"
    if likely:
        return f"did you mean '{likely[0]}'?"
    return "what is the script's own goes behind --; see 'dovetail submit --help'"
