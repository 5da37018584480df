"""The measurements that a first machine with a GPU runs: all but the device itself, on the CPU."""

import pytest

from benchmarks import gpu
from dovetail.live.engines.devices import Devices
from dovetail.live.engines.nvml import GpuInventory

SMALL = "--megabytes 0.1 --width 32 --batch-size 8"


def test_without_a_gpu_one_line_says_why_and_nothing_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "gpus", lambda: GpuInventory(None))
    gpu.main([])
    assert capsys.readouterr().out == "no GPU to measure on: the driver shows none\n"
    monkeypatch.setattr(gpu, "gpus", lambda: GpuInventory(None, ("it is lost",)))
    gpu.main([])
    assert capsys.readouterr().out.endswith("no GPU to measure on: it is lost\n")


def test_a_torch_that_sees_none_of_the_gpus_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "gpus", lambda: GpuInventory(Devices(("GPU-0",), "nvidia-h100", 8e10)))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    gpu.main(["--only", "pair"])
    first, name, last = capsys.readouterr().out.splitlines()
    assert first == "1 x nvidia-h100, 74.5 GiB each" and name.strip() == "GPU-0"
    assert last.startswith("no GPU to measure on: torch ") and "sees none" in last


def test_what_fails_does_not_stop_the_rest_and_is_named_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(bench: gpu.Bench) -> None:
        raise RuntimeError("no such device")

    for name, part in (
        ("pauses", fails),
        ("pair", print),
        ("pairs", print),
        ("resume", fails),
        ("profile", print),
    ):
        monkeypatch.setattr(gpu, name, part)
    with pytest.raises(SystemExit, match="failed: pauses, resume"):
        gpu.main(["--device", "cpu", "--words", SMALL])
    said = capsys.readouterr().out
    assert said.count("Bench(device='cpu'") == 3
    assert "pauses failed: RuntimeError: no such device" in said


@pytest.mark.slow
def test_all_of_it_is_played_on_the_cpu(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--device", "cpu", "--rounds", "1", "--seconds", "0.5", "--megabytes", "0.1"]
    gpu.main([*words, "--words", SMALL, "--kinds", "recommendation,input"])
    said = capfd.readouterr().out
    assert "1 rounds of 1 -> 2 -> 1 workers, gradients by gloo" in said
    assert "| two | " in said and "two under MPS" not in said
    assert "(MPS is not measured: it is of CUDA)" in said
    assert "| recommendation + input | " in said
    assert said.count("  cpu: ") == 3 and "Wrote " in said
