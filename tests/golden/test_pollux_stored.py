"""Pollux against the results its authors stored (minutes: `pytest -m slow`)."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

from dovetail.core.policy import parse_policy

ROOT = Path(__file__).resolve().parents[2]
STORED = "data/pollux-osdi21/results-jobload/pollux-1.0/summary.json"


@pytest.mark.slow
@pytest.mark.parametrize(("measured", "within"), [(False, 0.10), (True, 0.04)])
def test_a_workload_takes_as_long_as_its_authors_stored(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, measured: bool, within: float
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    bench = importlib.import_module("benchmarks.pollux_fidelity")
    folder = data_dir / "data" / "pollux-osdi21"
    stored = json.loads((data_dir / STORED).read_text())["jcts"]["workload-3"]
    trace = bench.workload(folder / "workloads" / "workload-3.csv")
    tables = folder / "traces" if measured else None

    jct = bench.completions(trace, parse_policy("pollux:decay=0"), tables)

    assert jct.keys() == stored.keys()
    assert np.mean([*jct.values()]) == pytest.approx(np.mean([*stored.values()]), rel=within)
