"""`python -m tools.zoo`: what is refitted, reported and written."""

from pathlib import Path

import pytest
from command_runner import Shell

from dovetail.physics.sharing.contention import parse_contention, shipped_contention
from dovetail.physics.zoo.models import shipped_sets
from dovetail.physics.zoo.profile_file import load_profiles
from tools.zoo.fit import FITS


def test_fit_wants_the_data_and_a_known_family(shell: Shell, tmp_path: Path) -> None:
    assert "is not a folder" in shell.refused("fit", "--data", tmp_path / "none")
    refused = shell.refused("fit", "--data", tmp_path, "--family", "gavel")
    assert "one of pollux, afs, muri, elasticflow" in refused


def test_fit_reports_held_out_errors_and_writes_the_sets(
    shell: Shell, data_dir: Path, tmp_path: Path
) -> None:
    out = tmp_path / "refitted"

    reported = shell.ok("fit", "--data", data_dir, "-o", out).out
    as_json = shell.ok("fit", "--data", data_dir, "--family", "pollux", "--json").json

    assert "pollux/bert" in reported and "2 to 4 nodes" in reported
    assert as_json["held_out"]["pollux/bert"]["mean"] == pytest.approx(0.033, abs=0.003)
    assert sorted(path.stem for path in out.iterdir()) == sorted([*FITS, "networks"])
    afs = [one for one in shipped_sets() if one.family == "afs"]
    assert load_profiles(out / "afs.toml").profiles[0].curve == afs[0].profiles[0].curve


def test_pairs_refit_reports_errors_and_writes(
    shell: Shell, data_dir: Path, tmp_path: Path
) -> None:
    text = shell.ok("pairs", "--data", data_dir, "-o", tmp_path).out

    assert "Recommendation" in text
    assert "rank correlation" in text
    written = parse_contention((tmp_path / "interference.toml").read_text())
    assert written.pairs == shipped_contention().pairs
    report = shell.ok("pairs", "--data", data_dir, "--json").json
    assert report["held_out"]["LM"]["law"]["rows"] == 200


def test_pairs_want_the_data(shell: Shell) -> None:
    assert "not a folder" in shell.refused("pairs", "--data", "nowhere")


@pytest.mark.slow
def test_the_benchmark_prints_fits_errors_and_call_times(shell: Shell, data_dir: Path) -> None:
    printed = shell.ok("benchmark", "--data", data_dir).out
    assert all(f"fit {family}: " in printed for family in FITS)
    assert "against ElasticFlow's T4 tables" in printed
    assert "iteration_s, one placement" in printed
