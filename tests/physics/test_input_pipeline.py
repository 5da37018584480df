"""Stages of models whose sources timed whole iterations only."""

import pytest
from physics_scene import a_model

from dovetail.physics.speed.throughput import iteration_s
from dovetail.physics.zoo.models import lookup, zoo
from dovetail.physics.zoo.provenance import Provenance
from tools.zoo.input_pipeline import COUNTS, InputCost, derived_stages, input_costs

TIMED = "muri"
RECKONED = [n for n in input_costs() if n.partition("/")[0] in ("pollux", "elasticflow", "afs")]
"""Models of plain data-parallel jobs; pipelines have stages of their own kind."""


def test_every_model_has_stages_and_only_those_of_muri_were_measured() -> None:
    for profile in zoo().values():
        assert profile.stages is not None, profile.full_name
        measured = profile.family == TIMED
        assert (profile.stages.provenance is Provenance.MEASURED) == measured, profile.full_name
        assert measured == (profile.full_name not in input_costs())


def test_no_derived_stage_outlasts_the_iteration_and_all_together_fill_it() -> None:
    for name in RECKONED:
        profile = lookup(name)
        for gpus in range(1, 65):
            times = profile.stage_times(gpus)
            alone_s = iteration_s(profile, gpus=gpus)
            assert times is not None
            # Between rows the stages are interpolated, up to 5 % above the true curve.
            slack = 1 + 1e-9 if gpus in COUNTS else 1.05
            assert max(times.of_resources()) <= alone_s * slack, (name, gpus)
            assert sum(times.of_resources()) >= alone_s * (1 - 1e-9), (name, gpus)


def test_one_gpu_exchanges_nothing_and_works_all_the_time_but_for_ncf() -> None:
    for name in RECKONED:
        cost = input_costs()[name]
        row = lookup(name).stage_times(1)
        assert row is not None and row.network_s == 0
        share = row.gpu_s / iteration_s(lookup(name), gpus=1)
        assert share == pytest.approx(cost.gpu_share)


def test_loading_counts_as_storage_for_images_and_as_cpu_for_speech() -> None:
    image, speech = (
        lookup("pollux/imagenet").stage_times(1),
        lookup("afs/deepspeech2").stage_times(1),
    )
    assert image is not None and image.cpu_s == 0
    # 6,400 images of 110 kB at 0.5 GB/s, and 8 ms of a core each over four loaders.
    assert image.storage_s == pytest.approx(6400 * (110e3 / 0.5e9 + 0.008 / 4))
    assert speech is not None and speech.storage_s == 0 and speech.cpu_s > 0


def test_a_loader_that_cannot_be_as_slow_as_reckoned_is_held_to_the_iteration() -> None:
    fast = lookup("elasticflow/resnet50").stage_times(1)
    reckoned_s = 128 * input_costs()["elasticflow/resnet50"].load_s
    assert fast is not None and fast.storage_s < reckoned_s
    assert fast.storage_s == iteration_s(lookup("elasticflow/resnet50"), gpus=1)


def test_a_model_without_a_cost_has_no_derived_stages() -> None:
    with pytest.raises(KeyError):
        derived_stages(a_model())
    with pytest.raises(ValueError, match="storage or cpu"):
        InputCost(1, 1, "disk", 1, "made up")
    with pytest.raises(ValueError, match="negative"):
        InputCost(1, 1, "cpu", 0, "made up")
