"""The texts a user gives, on the command line or in a notebook, and the `Options` they mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np

from dovetail.core.errors import InputError, nearest
from dovetail.core.placing import Placing
from dovetail.core.switching import Switching
from dovetail.core.trace import Trace
from dovetail.physics.zoo.device import device_memory_bytes
from dovetail.physics.zoo.profile_file import load_profiles
from dovetail.record.metrics import Window
from dovetail.study.options import Options, parse_adopt
from dovetail.traces.capacity import read_capacity
from dovetail.traces.cluster_file import read_cluster


class OptionTexts(TypedDict, total=False):
    """What may be given for a run; what is not has the default of `DEFAULTS`."""

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


DEFAULTS: OptionTexts = {
    "cluster": "16x4",
    "placement": "prefer,best-fit,keep",
    "switching": "restart:30",
    "forecast": "known",
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
}


def read_options(given: OptionTexts) -> Options:
    """Returns the options of a run. Raises InputError."""
    unknown = [key for key in given if key not in DEFAULTS]
    if unknown:
        raise InputError(f"option '{unknown[0]}'", "no such option", nearest(unknown[0], DEFAULTS))
    said: OptionTexts = {**DEFAULTS, **given}
    cluster = read_cluster(said["cluster"], device_memory_bytes)
    for profiles in said["profiles"]:
        load_profiles(Path(profiles))  # at once, not after the trace has been read
    if said["seed"] < 0:
        raise InputError("--seed", f"it must be 0 or more, not {said['seed']}")
    return Options(
        cluster=cluster,
        placing=Placing.parse(said["placement"]),
        switching=Switching.parse(said["switching"]),
        forecast=said["forecast"],
        belief=said["belief"],
        adopt=parse_adopt(said["adopt"]),
        cancelled=said["cancelled"],
        capacity=read_capacity(Path(said["capacity"]), cluster) if said["capacity"] else (),
        coalesce_s=said["coalesce_s"],
        interference=said["interference"],
        cycle=said["cycle"],
        physics=said["physics"],
        profiles=tuple(str(p) for p in said["profiles"]),
        without=frozenset(filter(None, (p.strip() for p in said["without"].split(",")))),
        window=Window(
            _seconds("--warm-up-s", said["warm_up_s"]), _seconds("--drain-s", said["drain_s"])
        ),
        seed=said["seed"],
    )


def _seconds(option: str, value: float) -> float:
    if not 0 <= value < float("inf"):
        raise InputError(option, f"it must be 0 or more, not {value:g}")
    return value


def check_window(trace: Trace, options: Options) -> None:
    """Raises InputError if the window of the options leaves no job to count."""
    if len(trace) and not options.window.rows(trace.jobs.submit_s).any():
        raise InputError(
            "--warm-up-s and --drain-s",
            "no job is left to count",
            f"submissions last {float(np.ptp(trace.jobs.submit_s)):g} s",
        )


def split_policies(text: str) -> list[str]:
    """Returns the policies of a list: by blanks (beside a comma or not) if any, else by commas.

    `a:x=1,b` cannot be told from a policy with a second parameter, so a part with `=` and no
    colon belongs to the policy before it.
    """
    spaced = re.sub(r"\s*,\s+|\s+,", " ", text.strip())
    if " " in spaced:
        return spaced.split()
    found: list[str] = []
    for part in filter(None, spaced.split(",")):
        if found and "=" in part and ":" not in part.partition("=")[0]:
            found[-1] += "," + part
        else:
            found.append(part)
    return found
