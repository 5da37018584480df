"""A cluster from a TOML file: what it says of queues, and what it refuses."""

from pathlib import Path

import pytest

from dovetail.core.errors import InputError
from dovetail.core.tenants import QueueSpec
from dovetail.traces.cluster_file import read_cluster

GROUPS = """
[[group]]
name = "old"
nodes = 2
gpus_per_node = 4
gpu_type = "v100"

[[group]]
name = "new"
nodes = 1
gpus_per_node = 8
gpu_type = "a100"
"""


def cluster_file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "cluster.toml"
    path.write_text(GROUPS + text)
    return str(path)


def test_a_queue_may_own_groups_of_nodes(tmp_path: Path) -> None:
    text = '[[queue]]\nname = "big"\ngroups = ["new"]\n[[queue]]\nname = "any"\n'
    cluster = read_cluster(cluster_file(tmp_path, text))
    assert cluster.queues == (QueueSpec("big", groups=("new",)), QueueSpec("any"))


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ('["newer"]', "queue 'big': unknown group 'newer'"),
        ('"new"', "field 'groups' must be a list of texts"),
        ("[1]", "field 'groups' must be a list of texts"),
    ],
)
def test_a_queue_on_nodes_that_do_not_exist_is_refused(
    tmp_path: Path, groups: str, why: str
) -> None:
    text = f'[[queue]]\nname = "big"\ngroups = {groups}\n'
    with pytest.raises(InputError, match=why):
        read_cluster(cluster_file(tmp_path, text))
