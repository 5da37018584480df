"""Prices by GPU type, from the command line and from a cluster's file."""

from pathlib import Path

import pytest

from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.study.options import Options
from dovetail.study.prices import GpuPrices, read_prices
from dovetail.traces.cluster_file import read_cluster

MIXED = Cluster.parse("9x4:a100+4x4:v100")
FILE = """
[[group]]
nodes = 9
gpus_per_node = 4
gpu_type = "a100"
price_per_gpu_h = 2.5
"""


def test_a_cluster_costs_its_installed_gpus_by_type_for_720_hours() -> None:
    prices = read_prices(["a100=2.10/h, v100=0.80"], [MIXED])
    assert prices is not None
    assert prices.cluster_per_h(MIXED) == pytest.approx(36 * 2.10 + 16 * 0.80)
    assert prices.cluster_per_month(MIXED) == pytest.approx(720 * 88.4)


def test_a_plain_number_is_the_price_of_all_other_types() -> None:
    assert read_prices(["1", "a100=3"], [MIXED]) == GpuPrices({"a100": 3.0}, 1.0)


def test_without_a_price_there_is_no_money() -> None:
    assert read_prices([], [MIXED]) is None


def test_a_file_has_prices_and_the_command_line_overrides_them(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(FILE)
    cluster = read_cluster(str(path))
    assert read_prices([], [cluster]) == GpuPrices({"a100": 2.5})
    assert read_prices(["a100=2"], [cluster]) == GpuPrices({"a100": 2.0})


def test_a_manifest_names_a_price_only_where_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(FILE)
    priced, plain = (
        Options(cluster).manifest()["cluster"] for cluster in (read_cluster(str(path)), MIXED)
    )
    assert isinstance(priced, dict)
    assert isinstance(plain, dict)
    assert priced["groups"][0]["price_per_gpu_h"] == 2.5
    assert all("price_per_gpu_h" not in group for group in plain["groups"])


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["a100"], "'a100' is not a price"),
        (["a100=-1"], "of 0 or more"),
        (["a100=nan"], "of 0 or more"),
        (["=2"], "names no GPU type"),
        (["a100=1,a100=2"], "twice"),
        (["1", "2"], "twice"),
        (["h100=1"], "no GPU type 'h100'"),
        (["a100=1"], "no price for v100"),
    ],
)
def test_prices_that_cannot_be_used_are_refused(texts: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_prices(texts, [MIXED])


def test_two_prices_of_one_type_in_a_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(FILE + FILE.replace("2.5", "3"))
    with pytest.raises(InputError, match="different prices"):
        read_prices([], [read_cluster(str(path))])
