"""Real training loops that share a machine: pairs and triples, freely, in turns, under limits.

    python -m benchmarks.colocation                   # what was measured, as tables
    python -m benchmarks.colocation --folder runs     # measure here; --within 280: then stop
    python -m benchmarks.colocation --folder runs --profile mine.json     # join it, and print it

Five kinds of jobs, each heavy on one resource or on all, first alone and then in sets, on two cores
with a disk and a network of known rates (`colocation_machine`; root and iproute2 are needed). It
goes on where it stopped: a file for each set, and `--within` seconds at a time. It has priority
over all else on the machine, but what is beside it is better idle.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.colocation_crew import Pace, crew_of, turn_costs
from benchmarks.colocation_machine import (
    DISK_BYTES_PER_S,
    LINK,
    QUANTUM_MS,
    machine,
    why_no_limits,
    why_not,
)
from benchmarks.colocation_profile import ALONE, Profile, joined, read_profile, tables
from benchmarks.colocation_sets import (
    KINDS,
    Cell,
    JobSet,
    Planned,
    Way,
    job_sets,
    keep,
    measured,
    missing,
    planned,
)
from benchmarks.colocation_turns import RESOURCES
from benchmarks.colocation_worker import SPREAD, STAGES
from dovetail.algorithms.stage_cycle import barrier_s, orderings

SHIPPED = sorted(Path(__file__).with_name("colocation_profiles").glob("*.json"))
TURN_COSTS = "turns.json"


def offsets_of(folder: Path, job_set: JobSet) -> tuple[int, ...]:
    """Returns the offsets of the shortest cycle by Muri's equation 3, from the stages alone."""
    rows = []
    for name in job_set.kinds:
        alone = [c for c in measured(folder, JobSet((name,), 0)) if c.way == Way(ALONE)]
        if not alone:
            return tuple(range(len(job_set.kinds)))
        rows.append(alone[0].members[0].used_s)
    return min(orderings(len(rows), RESOURCES), key=lambda offsets: barrier_s(rows, offsets))


def measure(folder: Path, cells: Iterable[Planned], pace: Pace, within_s: float) -> int:
    """Measures what is missing, as long as there is time; returns how many cells are left."""
    ends_s = time.monotonic() + within_s
    todo = list(missing(folder, cells))
    if not todo:
        return 0
    members = max(len(job_set.kinds) for _, job_set, _ in todo)
    if not (folder / TURN_COSTS).exists():
        (folder / TURN_COSTS).write_text(json.dumps(turn_costs()) + "\n")
    with machine(folder) as here, crew_of(here, members) as crew:
        for done, (repetition, job_set, way) in enumerate(todo):
            if time.monotonic() > ends_s:
                return len(todo) - done
            offsets = offsets_of(folder, job_set)
            told = tuple(crew.play(job_set, way, offsets, pace))
            cell = Cell(way, repetition, offsets, told)
            keep(folder, job_set, [*measured(folder, job_set), cell])
    return 0


def profile_of(folder: Path) -> Profile:
    """Joins the files of all sets."""
    where = {
        "disk_bytes_per_s": DISK_BYTES_PER_S,
        "link": LINK,
        "quantum_ms": QUANTUM_MS,
        "spread": SPREAD,
        "kinds": [asdict(kind) for kind in KINDS.values()],
        "stages": STAGES,
        "turns": json.loads((folder / TURN_COSTS).read_text()),
        "command": "python -m benchmarks.colocation --folder runs",
    }
    return joined(folder, [each.file_name for each in job_sets()], where)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="of what is measured")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.4, help="measured of each cell")
    parser.add_argument("--warm", type=float, default=0.3, help="seconds before")
    parser.add_argument("--within", type=float, default=3600.0, help="seconds, then stop")
    parser.add_argument("--only", default="", help="sets whose file names contain this")
    parser.add_argument("--profile", type=Path, help="measure nothing: join the folder into it")
    options = parser.parse_args(words)
    if options.folder is None:
        for path in [options.profile] if options.profile else SHIPPED:
            print(f"\n{path.stem}", *tables(read_profile(path)), sep="\n")
        return
    if options.profile:
        profile = profile_of(options.folder)
        options.profile.write_text(profile.text())
        print("\n".join(tables(profile)))
        return
    if why := why_not():
        raise SystemExit(f"no measurement here: {why}")
    options.folder.mkdir(parents=True, exist_ok=True)
    sets = [each for each in job_sets() if options.only in each.file_name]
    pace = Pace(options.warm, options.seconds)
    cells = list(planned(sets, options.repetitions))
    if why := why_no_limits():
        print(f"(limits are not measured: {why})")
        cells = [cell for cell in cells if cell[2].limited < 0]
    # So that what was made on the machine is taken away on any end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    left = measure(options.folder, cells, pace, options.within)
    print(f"{left} cells are left")


if __name__ == "__main__":
    main()
