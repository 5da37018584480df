"""`dovetail profile`: what is measured of a script, what is said of one that measures nothing."""

import json
import os
import sys
import tomllib
from pathlib import Path

import pytest
from command_runner import Shell

from dovetail.cli.profile import _print_wall_time
from dovetail.physics.speed.throughput import iteration_s
from dovetail.physics.zoo.profile_file import load_profiles
from dovetail.profiling.dry_run import MeasuredSubBatch, ParallelRun, SingleWorkerRun
from dovetail.profiling.profile_script import profile_set
from patience import is_there, until

TRAINS = """
import torch
from torch import nn
from dovetail.train import Job

class Digits(nn.Sequential):
    pass

model = Digits(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
data = (torch.randn(512, 64), torch.randint(0, 10, (512,)))
sgd = torch.optim.SGD(model.parameters(), 0.1)
job = Job(model, sgd, data=data, batch_size=32, epochs=2000)
for x, y in job.batches():
    job.backward(nn.functional.cross_entropy(model(x), y))
    job.step()
"""

TELLS = """
import json, os, sys
rows = [
    {"samples": 32 // s, "steps": s, "iteration_s": s * 0.01 + 32 * 0.002, "rate": 0.0,
     "memory_bytes": 1000000 + 5000 * (32 // s), "stage_s": [0.0, 0.001, 0.07, 0.0]}
    for s in (1, 2, 4)
]
line = {"model": "Net", "parameters": 1000, "batch_size": 32, "device": "cpu",
        "sub_batches": rows[: int(sys.argv[1])]}
open(os.environ["DOVETAIL_PROFILE_FILE"], "w").write(json.dumps(line))
"""


def script(folder: Path, text: str) -> Path:
    """Returns a script with this text."""
    file = folder / "train.py"
    file.write_text(text)
    return file


def test_a_script_is_measured_alone_and_the_set_is_read_by_other_commands(
    shell: Shell, tmp_path: Path, month: Path
) -> None:
    out = tmp_path / "net.toml"
    said = shell.ok("profile", "-w", "1", "-o", out, script(tmp_path, TELLS), "3").out
    assert "Net: batch 32, 1,000 parameters" in said
    assert "call the model 'Net'" in said
    (model,) = load_profiles(out).profiles
    a_and_b = model.compute[0][1].value
    assert a_and_b.a_s == pytest.approx(0.01)
    assert a_and_b.b_s_per_sample == pytest.approx(0.002)
    assert model.memory.value.fixed_bytes == pytest.approx(1e6)
    assert model.memory.value.per_sample_bytes == pytest.approx(5000.0)
    assert iteration_s(model, gpus=1) == pytest.approx(0.074)
    text = out.read_text()
    assert "dovetail profile" in text and str(tmp_path.name) in text, "the source says the command"
    assert shell.ok("models", "--profiles", out).out.count("Net") == 1
    shell.ok("simulate", month, "--policy", "fifo", "--cluster", "8x4", "--profiles", out)


def test_the_curve_is_as_measured_and_fitted_between(tmp_path: Path) -> None:
    alone = SingleWorkerRun(
        "Net", 10**6, 64, "cpu", (MeasuredSubBatch(64, 1, 0.1, 10**8, (0.0, 0.0, 0.1, 0.0)),)
    )
    together = [ParallelRun(n, t, 10**8, (0.0, 0.0, t, 0.0)) for n, t in ((2, 0.06), (4, 0.05))]
    (model,) = profile_set("net", alone, together, slots=4, where="here", family="A b").profiles
    assert (model.full_name, model.aliases) == ("a-b/net", ("Net",))
    for gpus, seconds in ((1, 0.1), (2, 0.06), (4, 0.05)):
        assert iteration_s(model, gpus=gpus) == pytest.approx(seconds)
    assert 0.05 < iteration_s(model, gpus=3) < 0.06
    assert model.stages is not None and [s.gpus for s in model.stages.value] == [1, 2, 4]


def test_of_a_plain_script_only_the_wall_time_is_known(shell: Shell, tmp_path: Path) -> None:
    plain = script(tmp_path, "import time; time.sleep(0.2)")
    said = shell.ok("profile", plain).out
    assert "No profile is written" in said
    found = shell.ok("profile", "--json", plain).json
    assert found["profile"] is None
    assert found["wall_s"] >= 0.2
    assert list(tmp_path.iterdir()) == [plain]


@pytest.mark.parametrize(
    ("text", "words", "says"),
    [
        ("raise SystemExit('no data')", [], "exit code 1 (no data)"),
        ("import time; time.sleep(3600)", ["--limit", "0.3"], "did not end within 0.3 s"),
        ("import os; os.write(os.open(os.environ['DOVETAIL_PROFILE_FILE'], 65), b'x')", [],
         "cannot be read"),
        ("", ["-w", "1000000"], "this machine runs 1 to"),
        ("", ["-w", "two"], "not a list of numbers"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused_with_a_sentence(
    shell: Shell, tmp_path: Path, text: str, words: list[str], says: str
) -> None:
    assert says in shell.refused("profile", *words, script(tmp_path, text))


def test_a_script_must_be_there(shell: Shell, tmp_path: Path) -> None:
    assert "no such file" in shell.refused("profile", tmp_path / "gone.py")
    assert "neither a .py file" in shell.refused("profile", "no-such-program-anywhere")


def test_without_pytorch_only_one_worker_can_be_measured(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two workers need two cores")
    monkeypatch.setitem(sys.modules, "dovetail.train.rehearsal", None)
    text = script(tmp_path, TELLS)
    assert "install dovetail[train]" in shell.refused("profile", "-w", "1,2", text, "3")
    shell.ok("profile", "-w", "1", "-o", tmp_path / "net.toml", text, "3")


def test_nothing_of_a_script_lives_on(shell: Shell, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    starts = f"""
import subprocess
with open({str(pid)!r}, "w") as file:
    file.write(str(subprocess.Popen(["sleep", "3600"]).pid))
"""
    shell.ok("profile", script(tmp_path, starts))
    until(lambda: not is_there(int(pid.read_text())))


def test_a_real_script_is_measured_alone_and_by_two_workers(shell: Shell, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two workers need two cores")
    out = tmp_path / "digits.toml"
    found = shell.ok(
        "profile", "-w", "1,2", "-n", "5", "--json", "--name", "digits", "-o", out,
        script(tmp_path, TRAINS),
    ).json  # fmt: skip
    assert [row["steps"] for row in found["sub_batches"]] == [1, 2, 4, 8, 16]
    assert [row["workers"] for row in found["workers"]] == [2]
    table = tomllib.loads(out.read_text())["model"][0]
    assert table["curve"]["gpus"] == [1, 2]
    assert all(seconds > 0 for seconds in table["curve"]["iteration_s"])
    assert table["parameters"]["value"] == 64 * 128 + 128 + 128 * 10 + 10
    assert json.loads(json.dumps(found))["profile"] == str(out)


@pytest.mark.parametrize(("wall_s", "said"), [(0.01, "0.1s"), (0.34, "0.3s"), (75.2, "75s")])
def test_the_length_to_say_is_never_none(
    wall_s: float, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _print_wall_time("short.py", wall_s, False)
    assert f"(duration: {said})" in capsys.readouterr().out
