"""Times `dovetail trace import` on a log of a million rows, whole command, with its peak memory.

Run:  python -m benchmarks.import_trace [--rows 1000000] [--format itp|slurm|canonical]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import polars as pl

from benchmarks.measure import dovetail
from dovetail.traces.canonical import write_trace
from dovetail.traces.generate import Recipe, generate

BARS = "JobID|User|Partition|State|Submit|Start|Elapsed|Timelimit|AllocTRES"


def write_log(path: Path, rows: int, kind: str) -> None:
    trace = generate(Recipe("philly-like", rows, 120.0, 0, time_limits=1.0))
    if kind == "canonical":
        write_trace(trace, path)
        return
    jobs = trace.jobs
    if kind == "itp":
        frame = pl.DataFrame(
            {
                "job_id": jobs.job_id,
                "submission_time": jobs.submit_s,
                "duration": trace.duration_s,
                "num_gpu": jobs.gpus,
            }
        )
        frame.write_csv(path)
        return
    when = pl.Series(jobs.submit_s + 1.7e9).cast(pl.Int64)
    texts = pl.from_epoch(when, "s").dt.strftime("%Y-%m-%dT%H:%M:%S").to_list()
    ran = trace.duration_s.astype(int).tolist()
    with path.open("w") as stream:
        stream.write(BARS + "\n")
        for i, (submit, gpus, s) in enumerate(zip(texts, jobs.gpus.tolist(), ran, strict=True)):
            clock = f"{s // 86400}-{s // 3600 % 24:02d}:{s // 60 % 60:02d}:{s % 60:02d}"
            tres = f"cpu=8,gres/gpu={gpus},mem=64G,node=1"
            words = (i, jobs.user[i], "gpu", "COMPLETED", submit, submit, clock, clock, tres)
            stream.write("|".join(map(str, words)) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--format", choices=["itp", "slurm", "canonical"], default="itp")
    parser.add_argument("--out", default=".csv", choices=[".csv", ".csv.gz", ".parquet"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "log.csv"
        write_log(source, given.rows, given.format)
        size_mib = source.stat().st_size / 2**20
        out = Path(folder) / f"trace{given.out}"
        cost = dovetail("trace", "import", str(source), "-o", str(out), "--json")
    print(
        json.dumps(
            {
                "format": given.format,
                "rows": given.rows,
                "source_mib": round(size_mib),
                "wall_s": round(cost.wall_s, 2),
                "peak_mib": round(cost.peak_mib),
                "rows_per_s": round(given.rows / cost.wall_s),
            }
        )
    )


if __name__ == "__main__":
    main()
