"""Runs the comparisons of docs/claims/fidelity.md: our commands beside the figures of others.

Run:  python -m benchmarks.fidelity [--only WORD] [--json]

Each case is a `dovetail simulate` command line, run as a user would type it, on a trace of
`DOVETAIL_DATA` (default `../shared`). The reference figures are what the public programs print;
the reason for each difference is printed beside it.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import tempfile
from contextlib import redirect_stderr
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path

MURI = "data/muri/sim-traces/{}.csv"
AFS = "data/afs-models/afs_trace_{}.csv"
YARN = "--cluster 8x8 --placement strict,first-fit,repack --switching none --physics linear"
COUNTS = "--cluster 8x8 --placement none --switching none --physics linear"
POOL = "--cluster 1x64 --placement none --switching none --physics counted"
TURNS = (
    "--cluster 8x8/1T --placement strict,first-fit --switching none --adopt shareable:1 "
    "--cycle overlapped,no-contention,no-floor"
)
EXACT = "the same schedule; rounding of sums"
MATCHINGS = "another one of equally good matchings, as far as the two programs can be compared"
WHOLE_SECONDS = "they round every arrival and end up to whole seconds"


@dataclass(frozen=True)
class Case:
    """One command and what the other program says; `reference` is None where it says nothing."""

    name: str
    trace: str
    policy: str
    options: str
    avg_jct_s: float
    why: str
    makespan_s: float | None = None
    p99_jct_s: float | None = None

    @property
    def takes_minutes(self) -> bool:
        """True for the traces on which Muri groups hundreds of waiting jobs at each event."""
        return "job_type" in self.trace or "_pr" in self.trace

    def words(self, data: str) -> list[str]:
        """Returns the command line without `-o`."""
        trace = f"{data}/{self.trace}"
        words = ["simulate", trace, "--policy", self.policy, *self.options.split()]
        return [*words, "--forecast", "known", "--no-bound"]


LISTS = "tiresias:thresholds=3250/7200,inside=list"
MURI_S = "muri-s:tick-s=0,merge-order=class,ties=gpus"
MURI_L = "muri-l:tick-s=0,merge-order=class,ties=gpus"
ELASTIC = f"{POOL} --adopt elastic:1"
FALL = "they round the seconds of a fall up; we demote a job when it reaches the threshold"
SUBMISSION = "another policy: our default serves a queue by submission, not as a list"
TIES = "where the rule decides nothing we keep the earlier job, they draw at random"


def _muri(
    name: str, trace: str, policy: str, options: str, why: str, *figures: float | None
) -> Case:
    avg_jct_s, makespan_s, p99_jct_s = figures
    assert avg_jct_s is not None
    path = MURI.format(trace)
    return Case(f"Muri {name}", path, policy, options, avg_jct_s, why, makespan_s, p99_jct_s)


def _afs(
    policy: str, trace: str, avg_jct_s: float, word: str = "", why: str = WHOLE_SECONDS
) -> Case:
    options = ELASTIC if policy in ("max-min", "optimus", "afs-l", "afs-p") else POOL
    return Case(f"AFS {policy} {trace}", AFS.format(trace), word or policy, options, avg_jct_s, why)


CASES = (
    _muri("SRTF", "trace3", "srtf", YARN, EXACT, 180112.953459, 8171960.8, 4280223.5),
    _muri("SRSF", "trace3", "srsf", YARN, EXACT, 172680.190658, 8171960.8, 3580525.7),
    _muri("Tiresias, lists", "trace3", LISTS, COUNTS, FALL, 327256.618834, 8171960.8, 4939311.4),
    _muri(
        "Tiresias, submission",
        "trace3",
        "tiresias:thresholds=3250/7200",
        COUNTS,
        SUBMISSION,
        *(327256.618834, 8171960.8, 4939311.4),
    ),
    _muri("S trace3", "trace3", MURI_S, TURNS, MATCHINGS, 57110.347877, 8171960.8, 462166.6),
    _muri("L trace3", "trace3", MURI_L, TURNS, MATCHINGS, 57015.357505, 8171960.8, 431897.6),
    _muri("S trace3_pr", "trace3_pr", MURI_S, TURNS, MATCHINGS, 383945.73, None, None),
    _muri(
        "S type 1", "job_type_1", MURI_S, TURNS, MATCHINGS, 185051.872664, 8171960.754, 1639055.2
    ),
    _muri(
        "L type 1", "job_type_1", MURI_L, TURNS, MATCHINGS, 292876.867734, 8171960.754, 3412395.2
    ),
    _muri("S type 2", "job_type_2", MURI_S, TURNS, MATCHINGS, 75065.755876, 8171960.92, 767605.7),
    _muri("L type 2", "job_type_2", MURI_L, TURNS, MATCHINGS, 80685.145637, 8171960.92, 761415.1),
    _muri("S type 3", "job_type_3", MURI_S, TURNS, MATCHINGS, 60251.953457, 8171960.92, 497630.7),
    _muri("L type 3", "job_type_3", MURI_L, TURNS, MATCHINGS, 61803.866002, 8171960.92, 513682.9),
    _afs("fifo", "2869ce", 147125.8910, "fifo:bypass=skip"),
    _afs("srtf", "2869ce", 123130.2180),
    _afs("srsf", "2869ce", 134505.1493),
    _afs("max-min", "2869ce", 93930.3033),
    _afs("optimus", "2869ce", 97341.8270),
    _afs("afs-l", "2869ce", 83781.7962),
    _afs("afs-p", "2869ce", 87125.3199, why=TIES),
)


@dataclass(frozen=True)
class Answer:
    """What a command gave. `p99` is theirs: the value at position int(0.99 n), sorted."""

    avg_jct_s: float
    makespan_s: float
    p99_jct_s: float


def run_command(words: list[str]) -> Answer:
    """Runs one command line in this process and reads the folder it writes."""
    from dovetail.cli.main import run

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        told = StringIO()
        with redirect_stderr(told), open(os.devnull, "w") as nowhere:
            was, sys.stdout = sys.stdout, nowhere
            try:
                code = run([*words, "--no-report", "-o", str(out)])
            finally:
                sys.stdout = was
        if code:
            raise SystemExit(f"dovetail {' '.join(words)}: exit code {code}\n{told.getvalue()}")
        summary = json.loads((out / "summary.json").read_text())
        with (out / "jobs.csv").open() as stream:
            jct = sorted(float(row["jct_s"]) for row in csv.DictReader(stream))
    return Answer(summary["avg_jct_s"], summary["makespan_s"], jct[int(0.99 * len(jct))])


def relative(ours: float, theirs: float) -> float:
    """Returns the difference relative to theirs."""
    return ours / theirs - 1


def measure(case: Case, data: str) -> dict[str, object]:
    """Returns one row: the command, ours, theirs, and the relative differences."""
    words = case.words(data)
    ours = run_command(words)
    row: dict[str, object] = {"case": case.name, "command": "dovetail " + " ".join(words)}
    for key, value in asdict(ours).items():
        theirs = getattr(case, key)
        row[key] = {"ours": value, "theirs": theirs}
        if theirs is not None:
            row[key] = {"ours": value, "theirs": theirs, "relative": relative(value, theirs)}
    return row | {"why": case.why}


def show(row: dict[str, object]) -> None:
    print(f"\n{row['case']}\n  {row['command']}")
    for key in ("avg_jct_s", "makespan_s", "p99_jct_s"):
        said = row[key]
        assert isinstance(said, dict)
        if said["theirs"] is not None:
            print(
                f"  {key:<11} ours {said['ours']:>16.6f}   theirs {said['theirs']:>16.6f}   "
                f"relative {said['relative']:+.1e}"
            )
    print(f"  {row['why']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="run the cases whose name has this word")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    data = os.environ.get("DOVETAIL_DATA", "../shared")
    if not Path(data).is_dir():
        raise SystemExit(f"{data}: no such folder; set DOVETAIL_DATA to the public traces")
    rows = []
    for case in CASES:
        if given.only.lower() in case.name.lower():
            rows.append(measure(case, data))
            if not given.json:
                show(rows[-1])
    if given.json:
        print(json.dumps({"cases": rows}))


if __name__ == "__main__":
    main()
