"""Runs the comparisons of docs/fidelity.md: our commands beside the figures of others' simulators.

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

MURI = "data/muri/sim-traces/trace3.csv"
AFS = "data/afs-models/afs_trace_2869ce.csv"
YARN = "--cluster 8x8 --placement strict,first-fit,repack --switching none --physics linear"
COUNTS = "--cluster 8x8 --placement none --switching none --physics linear"
POOL = "--cluster 1x64 --placement none --switching none --physics counted"
TURNS = (
    "--cluster 8x8 --placement strict,first-fit --switching none --adopt shareable:1 "
    "--cycle overlapped,no-contention,no-floor"
)
EXACT = "the same schedule; rounding of sums"
MATCHINGS = "another one of equally good matchings; equal job by job where no two are alike"
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

    def words(self, data: str) -> list[str]:
        """Returns the command line without `-o`."""
        trace = f"{data}/{self.trace}"
        words = ["simulate", trace, "--policy", self.policy, *self.options.split()]
        return [*words, "--no-bound"]


CASES = (
    Case("Muri SRTF", MURI, "srtf", YARN, 180112.953459, EXACT, 8171960.8, 4280223.5),
    Case("Muri SRSF", MURI, "srsf", YARN, 172680.190658, EXACT, 8171960.8, 3580525.7),
    Case(
        "Muri Tiresias, lists",
        MURI,
        "tiresias:thresholds=3250/7200,inside=list",
        COUNTS,
        327256.618834,
        "they round the seconds of a fall up; we let a job fall when it reaches the threshold",
        8171960.8,
        4939311.4,
    ),
    Case(
        "Muri Tiresias, submission",
        MURI,
        "tiresias:thresholds=3250/7200",
        COUNTS,
        327256.618834,
        "another policy: our default serves a queue by submission, not as a list",
        8171960.8,
        4939311.4,
    ),
    Case(
        "Muri-S",
        MURI,
        "muri-s:tick-s=0,merge-order=class,ties=gpus",
        TURNS,
        57110.347877,
        MATCHINGS,
        8171960.8,
        462166.6,
    ),
    Case(
        "Muri-L",
        MURI,
        "muri-l:tick-s=0,merge-order=class,ties=gpus",
        TURNS,
        57015.357505,
        MATCHINGS,
        8171960.8,
        431897.6,
    ),
    Case("AFS FIFO", AFS, "fifo:bypass=skip", POOL, 147125.8910, WHOLE_SECONDS),
    Case("AFS SRTF", AFS, "srtf", POOL, 123130.2180, WHOLE_SECONDS),
    Case("AFS SRSF", AFS, "srsf", POOL, 134505.1493, WHOLE_SECONDS),
    Case(
        "AFS Max-Min",
        AFS,
        "max-min:overflow=least-recent",
        f"{POOL} --adopt elastic:1",
        93930.3033,
        WHOLE_SECONDS,
    ),
    Case("AFS Optimus", AFS, "optimus", f"{POOL} --adopt elastic:1", 97341.8270, WHOLE_SECONDS),
    Case("AFS-L", AFS, "afs-l", f"{POOL} --adopt elastic:1", 83781.7962, WHOLE_SECONDS),
    Case(
        "AFS-P",
        AFS,
        "afs-p",
        f"{POOL} --adopt elastic:1",
        87125.3199,
        "where the rule says nothing we keep the earlier job, they draw lots; tie=random is nearer",
    ),
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
