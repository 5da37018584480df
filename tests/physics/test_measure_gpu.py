import os
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.physics.zoo.profile_file import load_profiles
from dovetail.physics.zoo.provenance import Provenance

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_measuring_script_writes_a_set_the_zoo_reads(tmp_path: Path) -> None:
    """Needs PyTorch: in this interpreter, or in the one that DOVETAIL_TORCH_PYTHON names."""
    python = os.environ.get("DOVETAIL_TORCH_PYTHON", sys.executable)
    probe = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("needs PyTorch: install it or set DOVETAIL_TORCH_PYTHON")

    subprocess.run(
        [python, "examples/measure_gpu.py", "--tiny", "--device", "cpu", "-o", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=True,
        timeout=300,
    )

    measured = load_profiles(tmp_path / "cpu-tiny.toml")
    names = ["resnet50", "vgg16", "bert", "gpt2", "a2c"]
    assert [profile.name for profile in measured.profiles] == names
    assert len(measured.pairs) == 15
    for profile in measured.profiles:
        assert profile.gpu_type.value == "cpu"
        assert profile.curve is not None and profile.curve.provenance is Provenance.MEASURED
        assert profile.stages is not None and profile.stages.value[0].gpu_s > 0
        assert profile.memory.value.per_sample_bytes > 0
    assert all(0.3 < ratio.first_ratio < 10 for ratio in measured.pairs)
