"""What a step costs a device beside the script's own loop, where there are many batch norms."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks import step_operations
from benchmarks.step_operations import NORMS, job_of, job_operations, net, plain_operations

GRADIENTS = 4 * NORMS
"""So many are added to buffers of the job's."""
OTHERS = 20
"""Small operations of a step, however deep the model is."""


def test_alone_nothing_is_asked_for_each_batch_norm() -> None:
    model = net()
    asked = job_operations(job_of(model), model)[-2]
    assert asked["copy_"] == 0 and asked["mul"] <= 2
    assert asked.total() <= plain_operations().total() + GRADIENTS + OTHERS


def test_two_workers_copy_the_statistics_of_all_batch_norms_together(tmp_path: Path) -> None:
    workers, digests = step_operations.workers_operations(tmp_path)
    for asked in (steps[-2] for steps in workers):
        assert 0 < asked["_foreach_copy_"] <= 4
        assert asked.total() <= plain_operations().total() + GRADIENTS + 2 * OTHERS
    assert digests[0] == digests[1]
