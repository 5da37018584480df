import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from physics_scene import a_model

from dovetail.cli.models import models
from dovetail.core.errors import InputError
from dovetail.physics.sharing.pairs import PairRatio
from dovetail.physics.zoo.models import zoo
from dovetail.physics.zoo.profile_file import ProfileSet, dump_profiles


def said(*arguments: str) -> str:
    result = CliRunner().invoke(models, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_list_names_every_model_in_80_columns() -> None:
    lines = said().splitlines()

    assert all(len(line) <= 80 for line in lines)
    assert [name for name in zoo() if not any(line.startswith(name) for line in lines)] == []


def test_the_list_gives_provenance_as_json() -> None:
    listed = json.loads(said("--json"))["models"]

    [bert] = [one for one in listed if one["name"] == "muri/bert"]
    assert bert["iteration_s"] == pytest.approx(0.178)
    assert bert["provenance"]["stages"] == "measured"
    assert bert["provenance"]["memory"] == "assumed"


def test_show_gives_every_field_with_its_source() -> None:
    shown = said("show", "DeepspeechModel64")

    assert shown.startswith("afs/deepspeech2")
    for field in ("compute.gtx1080", "overlap", "network", "memory", "curve", "max_gpus"):
        assert f"\n{field} (" in shown
    assert shown.count("source: ") >= 10
    assert "TuftsNATLab/PCS" in shown


def test_show_as_json_has_the_throughput_table() -> None:
    shown = json.loads(said("show", "vgg16", "--json"))

    assert shown["name"] == "muri/vgg16"
    assert shown["fields"]["stages"]["network_s"] == [0, 0.04, 0.067, 0.066, 0.11, 0.131]
    assert shown["throughput_per_s"][:2] == pytest.approx([0, 1 / 0.107], rel=1e-6)


def test_every_model_shows_stages_and_what_it_asks_of_a_shared_gpu() -> None:
    ncf = json.loads(said("show", "ncf", "--json"))["fields"]
    assert max(ncf["stages"]["cpu_s"]) > max(ncf["stages"]["gpu_s"])
    assert "law of contention" in ncf["stages"]["source"]
    assert ncf["stages"]["provenance"] == "assumed"
    listed = json.loads(said("--json"))["models"]
    made = {m["name"]: m["provenance"].get("stages") for m in listed}
    assert {p for name, p in made.items() if name.startswith("muri/")} == {"measured"}
    assert {p for name, p in made.items() if not name.startswith("muri/")} == {"assumed"}


def test_an_unknown_model_is_bad_input() -> None:
    with pytest.raises(InputError, match="did you mean"):
        said("show", "imagenett")


def test_devices_are_listed_with_provenance() -> None:
    assert "k80" in said("devices")
    listed = json.loads(said("devices", "--json"))["devices"]
    assert {one["speed"]["provenance"] for one in listed} <= {"derived", "assumed"}


def test_a_set_of_the_user_joins_the_list(tmp_path: Path) -> None:
    mine = ProfileSet("mine", "Mine", "mine", (), (a_model(family="mine"),))
    (tmp_path / "mine.toml").write_text(dump_profiles(mine))

    listed = said("--profiles", str(tmp_path / "mine.toml"))
    shown = said("--profiles", str(tmp_path / "mine.toml"), "show", "mine/plain")

    assert "mine/plain" in listed
    assert shown.startswith("mine/plain: A plain model")


def test_pairs_show_a_matrix_of_ratios_in_80_columns() -> None:
    shown = said("pairs")

    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "2.18*" in shown
    ratio = json.loads(said("pairs", "--json"))["ratio"]
    assert list(ratio) == ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"]
    assert 1 < ratio["imagenet"]["ncf"] < ratio["imagenet"]["bert"] < ratio["imagenet"]["imagenet"]


def test_pairs_of_a_users_file_are_shown(tmp_path: Path) -> None:
    pair = PairRatio("plain", 64, "plain", 64, 3.25, 3.25)
    own = ProfileSet("mine", "Mine", "mine", (), (a_model(family="mine"),), (pair,))
    file = tmp_path / "mine.toml"
    file.write_text(dump_profiles(own))

    assert "3.25*" in said("--profiles", str(file), "pairs", "--family", "mine")


def test_pairs_of_an_unknown_family_are_bad_input() -> None:
    with pytest.raises(InputError, match="did you mean"):
        said("pairs", "--family", "polux")


@pytest.mark.parametrize(
    "arguments", [("fit", "--data", "../shared"), ("pairs", "--data", "../shared")]
)
def test_refits_are_made_from_a_checkout(arguments: tuple[str, ...]) -> None:
    refused = CliRunner().invoke(models, arguments)
    assert refused.exit_code == 1
    assert f"run `python -m tools.zoo {arguments[0]}" in refused.output
