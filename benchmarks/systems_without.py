"""What the table of `python -m papers systems` becomes without what decides its ranking.

The same nine windows with one seed and a load of 0.9: with all, half or none of the jobs elastic,
with a restart for every resize, and Gandiva where a switch costs a second. Ratios of mean JCT over
SRTF's in the same setting. Run: python -m benchmarks.systems_without [SETTING ...]
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from dovetail.core.errors import InputError
from dovetail.core.switching import Switching
from dovetail.study.options import Options
from papers.systems.experiments import BASE, BASELINE, owners, system_run, systems
from papers.systems.results import HEAVY, geometric
from papers.systems.workloads import REAL, WindowWorkload

WINDOWS, JOBS = 3, 120
RESIZING = (
    *("afs-l", "afs-p", "afs-s", "srtf-e", "srsf-e", "max-min", "optimus", "themis"),
    *("srtf-max", "srsf-max", "tiresias-max"),
)
SECOND = Switching.parse("restart:1,prepared:1")
SETTINGS: dict[str, tuple[Options, tuple[str, ...]]] = {
    "all-elastic": (BASE, RESIZING),
    "half-elastic": (replace(BASE, adopt=owners(elastic=0.5)), RESIZING),
    "none-elastic": (replace(BASE, adopt=owners(elastic=0.0)), RESIZING),
    "resize-restarts": (replace(BASE, switching=Switching.parse("restart:30")), RESIZING),
    "switch-1s": (replace(BASE, switching=SECOND), ("gandiva",)),
}


def main() -> None:
    """Plays the settings named, or all, and prints a row for each system."""
    data = Path(os.environ.get("DOVETAIL_DATA", "../shared"))
    if not all((data / source.file).exists() for source in REAL):
        raise InputError(str(data), "the traces are not there", "set DOVETAIL_DATA")
    workloads = [
        WindowWorkload(s, str(data), window, WINDOWS, JOBS, HEAVY, 0)
        for s in REAL
        for window in range(WINDOWS)
    ]
    text = {system.name: system.text for system in systems()}
    for setting in sys.argv[1:] or SETTINGS:
        options, names = SETTINGS[setting]
        mean_s = {
            name: np.array(
                [
                    system_run(text[name], workload, options).play()["jct_s"]
                    for workload in workloads
                ]
            )
            for name in (BASELINE, *names)
        }
        for name in names:
            ratio = geometric(mean_s[name] / mean_s[BASELINE])
            print(
                f"| {setting} | {name} | {ratio.value:.2f} | {ratio.low:.2f} to {ratio.high:.2f} |"
            )


if __name__ == "__main__":
    main()
