import pickle

import pytest
from physics_scene import a_model

from dovetail.core.errors import InputError
from dovetail.physics.zoo.device import device, device_memory_bytes, devices, time_factor
from dovetail.physics.zoo.models import Catalogue, lookup, seconds_per_iteration, shipped_sets, zoo
from dovetail.physics.zoo.profile_file import ProfileSet


def test_the_zoo_holds_the_models_of_five_papers() -> None:
    families = [name.partition("/")[0] for name in zoo()]

    assert {family: families.count(family) for family in families} == {
        "pollux": 6,
        "muri": 8,
        "elasticflow": 6,
        "afs": 11,
        "asrpt": 9,
    }


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("DeepspeechModel64", "afs/deepspeech2"),
        ("VggnetModel256", "afs/vgg16"),
        ("shufflenet_v2_x1_0", "muri/shufflenet_v2_x1_0"),
        ("vgg16", "muri/vgg16"),
        ("cifar10", "pollux/cifar10"),
        ("imagenet", "pollux/imagenet"),
        ("bert", "pollux/bert"),
        ("inception3", "elasticflow/inception3"),
        ("resnet50", "elasticflow/resnet50"),
        ("Muri/BERT", "muri/bert"),
    ],
)
def test_traces_names_are_found(name: str, found: str) -> None:
    assert lookup(name).full_name == found


def test_a_family_decides_where_two_have_the_name() -> None:
    assert lookup("bert", family="muri").full_name == "muri/bert"
    assert lookup("deepspeech2", family="afs").full_name == "afs/deepspeech2"
    assert lookup("gpt2", family="afs").full_name == "muri/gpt2"


def test_an_unknown_model_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"shuflenet.*did you mean 'shufflenet'"):
        lookup("shuflenet")
    with pytest.raises(InputError, match="`dovetail models` lists what is known"):
        lookup("0000")


@pytest.mark.parametrize(
    ("model", "gpus", "family", "expected_s"),
    [
        ("DeepspeechModel64", 1, "", 0.619714),
        ("DeepspeechModel64", 3, "", 0.385933),
        ("DeepspeechModel64", 20, "", 0.309056),
        ("Inception4Model256", 52, "", 0.183125),
        ("ChatbotModel256", 4, "", 0.066419),
        ("shufflenet_v2_x1_0", 4, "", 0.886),
        ("vgg16", 32, "muri", 0.336),
        ("bert", 8, "muri", 0.192),
        ("vgg16", 64, "elasticflow", 1 / 25.78250120819821),
    ],
)
def test_measured_iteration_times_are_given_as_measured(
    model: str, gpus: int, family: str, expected_s: float
) -> None:
    assert seconds_per_iteration(model, gpus, family) == pytest.approx(expected_s, rel=1e-12)


def test_an_unknown_model_has_no_iteration_time() -> None:
    assert seconds_per_iteration("no such model", 4) is None


def test_fitted_iteration_times_are_near_single_measurements() -> None:
    # ResNet-50 on one T4, 200 images: 0.924 s was measured; BERT on one T4, 12: 0.922 s.
    from dovetail.physics.speed.throughput import iteration_s

    resnet = iteration_s(lookup("imagenet"), gpus=1, batch_per_gpu=200)
    bert = iteration_s(lookup("pollux/bert"), gpus=1, batch_per_gpu=12)

    assert resnet == pytest.approx(0.924, rel=0.06)
    assert bert == pytest.approx(0.922, rel=0.03)


def test_muri_stages_load_from_storage_or_from_the_cpu() -> None:
    image, game = lookup("muri/resnet18").stage_times(8), lookup("a2c").stage_times(8)

    assert image is not None and image.of_resources() == (0.784, 0.0, 0.117, 0.077)
    assert game is not None and game.of_resources() == (0.0, 0.502, 0.014, 0.0004)


def test_every_model_fits_its_own_device_at_the_batch_it_ran() -> None:
    for profile in zoo().values():
        memory_bytes = device(profile.gpu_type.value).memory_bytes.value
        batch = profile.batch.value
        each = min(batch.max_per_gpu, batch.size)
        assert profile.memory.value.used_bytes(each) <= memory_bytes, profile.full_name


def test_every_model_can_go_to_another_process() -> None:
    for profile in zoo().values():
        assert pickle.loads(pickle.dumps(profile)) == profile


def test_a_set_from_a_file_joins_the_catalogue_after_ours() -> None:
    mine = ProfileSet("scene", "mine", "mine", (), (a_model(name="bert"), a_model()))

    catalogue = Catalogue([*shipped_sets(), mine])

    assert catalogue.lookup("bert").full_name == "pollux/bert"
    assert catalogue.lookup("bert", family="scene").full_name == "scene/bert"
    assert catalogue.lookup("plain64").full_name == "scene/bert"
    assert len(catalogue.profiles) == len(zoo()) + 2


def test_a_mig_instance_has_its_part_of_the_gpu() -> None:
    half, whole = device("A100-80GB_3g.40gb"), device("a100-80gb")
    assert half.speed.value == pytest.approx(whole.speed.value * 3 / 7)
    assert half.memory_bytes.value == 40 * 2**30
    assert device("h100-1g.10gb").speed.value == pytest.approx(device("h100").speed.value / 7)
    assert device_memory_bytes("1g.10gb") == 10 * 2**30
    assert time_factor("a100", "a100-7g.40gb") == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["1g.10gb", "t4-1g.5gb", "a100-8g.40gb", "a100-1g.80gb", "a100-"])
def test_what_is_no_mig_instance_of_a_known_gpu_has_no_speed(name: str) -> None:
    with pytest.raises(InputError, match="its speed is unknown"):
        device(name)


def test_devices_are_found_by_any_name() -> None:
    assert device("Tesla-V100").name == "v100"
    assert device("T4").memory_bytes.value == 16 * 2**30
    assert all(one.speed.value > 0 and one.speed.source for one in devices().values())
