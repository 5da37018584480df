"""Parses the options of a command line or a notebook as `Options`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError, nearest
from dovetail.core.placing import Placing
from dovetail.core.switching import Switching
from dovetail.core.trace import Trace
from dovetail.forecast.available import AVAILABLE
from dovetail.physics.zoo.device import device_memory_bytes
from dovetail.physics.zoo.profile_file import load_profiles
from dovetail.record.metrics import Window
from dovetail.study.options import Options, parse_adopt
from dovetail.traces.capacity import Timeline, read_capacity
from dovetail.traces.cluster_file import read_cluster
from dovetail.traces.hardware import cluster_of_log
from dovetail.traces.loss import parse_share

INFERRED = "inferred"
"""The value of `--capacity` that takes the changes from the record of the trace."""

ASSUMED_CLUSTER = "16x4"
"""The cluster where neither the user nor the trace names one."""


class OptionTexts(TypedDict, total=False):
    """The options of a run as texts; `DEFAULTS` has the value of a missing one."""

    cluster: str
    placement: str
    switching: str
    forecast: str
    belief: str
    physics: str
    profiles: Sequence[str]
    interference: str | float
    cycle: str
    adopt: str
    cancelled: str
    capacity: str
    coalesce_s: float
    without: str
    warm_up_s: float
    drain_s: float
    seed: int
    allow_left_out: str


DEFAULTS: OptionTexts = {
    "cluster": "",
    "placement": "prefer,best-fit,keep",
    "switching": "restart:30",
    "forecast": AVAILABLE,
    "belief": "exact",
    "physics": "placed",
    "profiles": (),
    "interference": "measured",
    "cycle": "overlapped",
    "adopt": "",
    "cancelled": "work",
    "capacity": "",
    "coalesce_s": 0.0,
    "without": "",
    "warm_up_s": 0.0,
    "drain_s": 0.0,
    "seed": 0,
    "allow_left_out": "1%",
}


def read_options(option_texts: OptionTexts) -> Options:
    """Returns the options of a run. Raises InputError."""
    unknown = [key for key in option_texts if key not in DEFAULTS]
    if unknown:
        raise InputError(f"option '{unknown[0]}'", "no such option", nearest(unknown[0], DEFAULTS))
    texts: OptionTexts = {**DEFAULTS, **option_texts}
    cluster = read_cluster(texts["cluster"] or ASSUMED_CLUSTER, device_memory_bytes)
    for profiles in texts["profiles"]:
        load_profiles(Path(profiles))  # Raises an error before the trace is read.
    if texts["seed"] < 0:
        raise InputError("--seed", f"it must be 0 or more, not {texts['seed']}")
    return Options(
        cluster=cluster,
        placing=Placing.parse(texts["placement"]),
        switching=Switching.parse(texts["switching"]),
        forecast=texts["forecast"],
        belief=texts["belief"],
        adopt=parse_adopt(texts["adopt"]),
        cancelled=texts["cancelled"],
        capacity=_changes(texts["capacity"], cluster),
        infer_capacity=texts["capacity"] == INFERRED,
        coalesce_s=texts["coalesce_s"],
        interference=texts["interference"],
        cycle=texts["cycle"],
        physics=texts["physics"],
        profiles=tuple(str(p) for p in texts["profiles"]),
        without=frozenset(filter(None, (p.strip() for p in texts["without"].split(",")))),
        window=Window(
            _seconds("--warm-up-s", texts["warm_up_s"]), _seconds("--drain-s", texts["drain_s"])
        ),
        seed=texts["seed"],
        left_out_max=parse_share("--allow-left-out", texts["allow_left_out"]),
    )


def options_on(
    trace: Trace, option_texts: OptionTexts, *, assumed: str = ASSUMED_CLUSTER
) -> tuple[Options, list[str]]:
    """Returns the options of a run on a trace, and what must be said of its cluster.

    Where no cluster is named it is the one that fits the log, else `assumed`. Raises InputError.
    """
    if option_texts.get("cluster"):
        return read_options(option_texts), []
    texts: OptionTexts = {**option_texts, "cluster": cluster_of_log(trace)}
    if texts["cluster"]:
        made = "" if _is_whole_log(trace) else " that the trace was made from"
        note = f"no --cluster was given: the runs are on {texts['cluster']}, which fits the log"
        note += made
    else:
        texts["cluster"] = assumed
        note = f"no --cluster was given and the trace does not tell one: the runs are on {assumed}"
    return read_options(texts), [note]


def _is_whole_log(trace: Trace) -> bool:
    """True if a trace is all that its import kept, or if it does not know."""
    record = trace.imported
    if record is None or not record.cluster:
        return True
    return trace.recorded is not None and record.counts.get("usable") == len(trace)


def _changes(text: str, cluster: Cluster) -> Timeline:
    return [] if text in ("", INFERRED) else read_capacity(Path(text), cluster)


def _seconds(option: str, value: float) -> float:
    if not 0 <= value < float("inf"):
        raise InputError(option, f"it must be 0 or more, not {value:g}")
    return value


def check_window(trace: Trace, options: Options) -> None:
    """Raises InputError if the window of the options excludes all jobs."""
    if len(trace) and not options.window.rows(trace.jobs.submit_s).any():
        raise InputError(
            "--warm-up-s and --drain-s",
            "no job is left to count",
            f"submissions last {float(np.ptp(trace.jobs.submit_s)):g} s",
        )


def split_policies(text: str) -> list[str]:
    """Returns the policies of a list, split by spaces (with or without commas), else by commas.

    A part with `=` and no colon belongs to the policy before it, since `a:x=1,y=2` may be one
    policy with two parameters.
    """
    spaced = re.sub(r"\s*,\s+|\s+,", " ", text.strip())
    if " " in spaced:
        return spaced.split()
    policies: list[str] = []
    for part in filter(None, spaced.split(",")):
        if policies and "=" in part and ":" not in part.partition("=")[0]:
            policies[-1] += "," + part
        else:
            policies.append(part)
    return policies
