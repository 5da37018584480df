"""A worker that finds no room on its GPU says so by its exit code, also before its `Job`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")

import torch
from torch.distributed import DistBackendError

from dovetail.train.process.out_of_memory import OUT_OF_MEMORY_EXIT, is_out_of_memory
from out_of_memory_texts import NO_ROOM, OTHERS

KINDS = (RuntimeError, torch.AcceleratorError, DistBackendError)


@pytest.mark.parametrize("text", NO_ROOM.values(), ids=NO_ROOM)
def test_errors_that_say_there_is_no_room_are_known(text: str) -> None:
    assert all(is_out_of_memory(kind(text)) for kind in KINDS)


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_other_errors_are_not_taken_for_it(text: str) -> None:
    assert not any(is_out_of_memory(kind(text)) for kind in KINDS)


def test_the_error_that_led_to_another_counts() -> None:
    error = ValueError("this model cannot be trained")
    error.__context__ = torch.OutOfMemoryError("full")
    assert is_out_of_memory(error)
    error.__suppress_context__ = True
    assert not is_out_of_memory(error)


SCRIPT = """
import torch, dovetail.train
from torch.distributed import DistBackendError
class Model(torch.nn.Module):
    def cuda(self):
        raise {error}
Model().cuda()
dovetail.train.Job()
"""


@pytest.mark.parametrize(
    ("error", "submitted", "code"),
    [
        ("DistBackendError(\"Cuda failure 2 'out of memory'\")", True, 5),
        ("RuntimeError('something else')", True, 1),
        ("torch.OutOfMemoryError('CUDA out of memory.')", False, 1),
    ],
)
def test_a_script_that_finds_no_room_before_its_job_ends_with_a_code(
    error: str, submitted: bool, code: int
) -> None:
    around = {k: v for k, v in os.environ.items() if not k.startswith("DOVETAIL_")}
    if submitted:
        around |= {"DOVETAIL_SOCKET": "/nowhere", "DOVETAIL_WORKER": "1/0"}
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(error=error)],
        env=around,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    assert "Traceback" in ended.stderr and OUT_OF_MEMORY_EXIT == 5
