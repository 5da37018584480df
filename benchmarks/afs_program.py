"""Runs the AFS authors' simulator beside ours on the traces of `data/afs-models`.

Run:  python -m benchmarks.afs_program PATH [--traces 2869ce,ee9e8c] [--policies max-min,afs-p]
                                            [--seeds 0,1,2]

PATH is a checkout of github.com/abdullahfsm/AFS (6a9f05c was used for docs/claims/fidelity.md).
Its scheduler runs unchanged; only its plotting and its distributed runner, which a run does not
use, are replaced by empty modules. Jobs come from the public traces and curves instead of the raw
Philly log, which is not in that repository. `--seeds` is of its `random` module: ties of AFS-P.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import os
import random
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fidelity import POOL, relative, run_command

TRACES = ("2869ce", "103959", "e13805", "ed69ec", "0e4a51", "ee9e8c")
PROGRAMS = {
    "fifo": ("FIFO", "fifo:bypass=skip"),
    "srtf": ("SRTF", "srtf"),
    "srsf": ("SRSF", "srsf"),
    "max-min": ("MaxMin", "max-min"),
    "optimus": ("Optimus", "optimus"),
    "afs-l": ("Opt2Jobs", "afs-l"),
    "afs-p": ("OptPP", "afs-p"),
}
"""Our name for a policy, theirs, and our command's word for it."""

ELASTIC = ("max-min", "optimus", "afs-l", "afs-p")
GPUS = 64


def load_program(path: Path) -> types.ModuleType:
    """Returns their `sim` module, without the packages that a run does not use."""
    for name in ("ray", "matplotlib", "matplotlib.patches", "matplotlib.pyplot"):
        sys.modules[name] = types.ModuleType(name)
    vars(sys.modules["ray"])["remote"] = lambda *targets, **_: (
        targets[0] if targets else lambda target: target
    )
    sys.path.insert(0, str(path))
    return importlib.import_module("sim")


@dataclass(frozen=True)
class Program:
    """Their simulator with the curves of its nine models."""

    sim: types.ModuleType
    models: dict[str, object]
    folder: Path

    @staticmethod
    def load(path: Path, folder: Path) -> Program:
        """Returns the program of a checkout; `folder` has the traces and the curves."""
        sim = load_program(path)
        curves: dict[str, dict[int, float]] = {}
        with (folder / "afs_scaling_curves_derived.csv").open() as stream:
            for row in csv.DictReader(stream):
                us = float(row["us_per_iteration"])
                curves.setdefault(row["model"], {})[int(row["num_gpus"])] = us
        model: Callable[..., object] = sys.modules["models"].Model
        any_length = 10**6  # their constructor wants one above 0; a trace gives each job its own
        models = {
            name: model(name, any_length, [us for _, us in sorted(curve.items())])
            for name, curve in curves.items()
        }
        return Program(sim, models, folder)

    def mean_jct_s(self, trace: str, policy: str, seed: int) -> float:
        """Returns the mean completion time that their scheduler gives."""
        most = "max_gpus_model" if policy in ELASTIC else "req_gpus"
        jobs = []
        with (self.folder / f"afs_trace_{trace}.csv").open() as stream:
            for row in csv.DictReader(stream):
                jobs.append(
                    self.sim.TraceEntry(
                        float(row["submit_s"]),
                        self.models[row["model"]],
                        float(row["iterations"]),
                        int(row[most]),
                        int(row["req_gpus"]),
                    )
                )
        random.seed(seed)
        scheduler = self.sim.Scheduler(PROGRAMS[policy][0], GPUS, jobs)
        while not scheduler.is_done():
            scheduler.continue_next_event()
        return sum(job.sojourn_time() for job in scheduler.jobs_fin) / len(jobs)


def our_mean_jct_s(folder: Path, trace: str, policy: str) -> float:
    """Returns the mean completion time of our command."""
    file = folder / f"afs_trace_{trace}.csv"
    words = ["simulate", str(file), "--policy", PROGRAMS[policy][1], *POOL.split(), "--no-bound"]
    words += ["--forecast", "known"]
    adopt = ["--adopt", "elastic:1"] if policy in ELASTIC else []
    return run_command([*words, *adopt]).avg_jct_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="a checkout of the AFS authors' simulator")
    parser.add_argument("--traces", default=",".join(TRACES))
    parser.add_argument("--policies", default=",".join(PROGRAMS))
    parser.add_argument("--seeds", default="0", help="of their random module")
    given = parser.parse_args()
    folder = Path(os.environ.get("DOVETAIL_DATA", "../shared")) / "data" / "afs-models"
    if not (given.path / "sim.py").exists():
        raise SystemExit(f"{given.path}: no sim.py there; give a checkout of the AFS simulator")
    if not folder.is_dir():
        raise SystemExit(f"{folder}: no such folder; set DOVETAIL_DATA to the public traces")
    theirs = Program.load(given.path, folder)
    for trace in given.traces.split(","):
        for policy in given.policies.split(","):
            ours_s = our_mean_jct_s(folder, trace, policy)
            for seed in given.seeds.split(","):
                theirs_s = theirs.mean_jct_s(trace, policy, int(seed))
                print(
                    f"{trace} {policy:<8} seed {seed}: theirs {theirs_s:14.4f} s   "
                    f"ours {ours_s:14.4f} s   {relative(ours_s, theirs_s):+.1e}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
