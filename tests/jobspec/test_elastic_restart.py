"""Which jobs may be restarted to change their GPUs, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.core.errors import InputError
from dovetail.jobspec.files import SpecFile, Submitter, read_command, read_spec
from dovetail.wire.spec import JobSpec
from dovetail.wire.torchrun import fixed_sizes, is_torchrun, without_sizes


def submitted(path: Path, *command: str, **fields: str) -> SpecFile:
    """Returns the jobs of a command line with these fields."""
    return read_command(command, Submitter(path, {"gpus": "1..4", **fields}, trains=True))


def spec(path: Path, *command: str, **fields: str) -> JobSpec:
    return submitted(path, *command, **{"elastic": "restart", **fields}).submissions[0].spec


def test_a_range_of_gpus_is_for_dovetail_train_unless_it_is_said_otherwise(tmp_path: Path) -> None:
    usual = submitted(tmp_path, "python", "x.py").submissions[0].spec
    assert (usual.trains, usual.restart_s) == (True, 0.0)
    other = spec(tmp_path, "python", "x.py")
    assert (other.trains, other.restart_s, other.elastic, other.tasks) == (False, 30.0, True, 1)
    assert spec(tmp_path, "python", "x.py", elastic="restart:2m").restart_s == 120.0


def test_a_command_runs_on_each_gpu_and_torchrun_or_a_script_once_on_each_node(
    tmp_path: Path,
) -> None:
    assert not spec(tmp_path, "python", "x.py").starts_per_node
    assert spec(tmp_path, "/opt/bin/torchrun", "x.py").starts_per_node
    assert spec(tmp_path, "python", "-m", "torch.distributed.run", "x.py").starts_per_node
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\n#DOVETAIL gpus=1..4 elastic=restart:45s\ntorchrun x.py\n")
    found = read_spec(script, Submitter(tmp_path)).submissions[0].spec
    assert found.starts_per_node and found.restart_s == 45.0


def test_a_yaml_file_says_it_by_its_field(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("command: python x.py\ngpus: 2..8\nelastic: restart\ngrace: 2m\n")
    found = read_spec(path, Submitter(tmp_path)).submissions[0].spec
    assert (found.min_gpus, found.max_gpus, found.restart_s, found.grace_s) == (2, 8, 30.0, 120.0)


@pytest.mark.parametrize(
    ("command", "fields", "words"),
    [
        (("python", "x.py"), {"elastic": "yes"}, "it is restart, or restart:45s"),
        (("python", "x.py"), {"elastic": "restart:45"}, "lacks a unit"),
        (("python", "x.py"), {"gpus": "2"}, "it needs a range of GPUs"),
        (("python", "x.py"), {"gpus": "1,2,4"}, "gpus"),
        (("python", "x.py"), {"trains": "yes"}, "is resized without a restart"),
        (("python", "x.py"), {"ntasks": "2"}, "started on each GPU, or once on each node"),
        (("python", "ours.py"), {}, "ours.py uses dovetail.train"),
        (("accelerate", "launch", "x.py"), {}, "accelerate launch starts processes by itself"),
        (("/usr/bin/deepspeed", "x.py"), {}, "deepspeed starts processes by itself"),
    ],
)
def test_what_cannot_be_restarted_is_refused_in_one_sentence(
    tmp_path: Path, command: tuple[str, ...], fields: dict[str, str], words: str
) -> None:
    (tmp_path / "ours.py").write_text("import torch\nfrom dovetail.train import Job\n")
    (tmp_path / "x.py").write_text("# not an import: dovetail.train\n")
    with pytest.raises(InputError, match=words):
        spec(tmp_path, *command, **fields)


def test_sizes_on_the_command_line_of_torchrun_are_noted(tmp_path: Path) -> None:
    line = ("torchrun", "--nproc_per_node=4", "--max-restarts", "3", "x.py", "--nnodes", "7")
    (note,) = submitted(tmp_path, *line, elastic="restart").notes
    assert note.endswith("in place of --nproc_per_node=4, --max-restarts")
    assert submitted(tmp_path, "torchrun", "x.py", elastic="restart").notes == ()


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("torchrun x.py", "torchrun x.py"),
        ("torchrun --standalone --nproc-per-node 2 x.py -n 3", "torchrun x.py -n 3"),
        ("torchrun --nproc 2 --nnodes=1:4 --rdzv_id=7 x.py", "torchrun x.py"),
        ("torchrun -m --tee 3 --node_rank 1 pack.age", "torchrun -m --tee 3 pack.age"),
        ("torchrun -t 3 --standalone x.py --standalone", "torchrun -t 3 x.py --standalone"),
        ("python -m torch.distributed.run --nnodes 2 x", "python -m torch.distributed.run x"),
    ],
)
def test_torchrun_is_left_without_its_sizes(line: str, left: str) -> None:
    assert is_torchrun(line.split())
    assert without_sizes(line.split()) == tuple(left.split())
    assert fixed_sizes(left.split()) == ()


def test_every_option_of_torchrun_is_known() -> None:
    run = pytest.importorskip("torch.distributed.run")
    from dovetail.wire.torchrun import ALONE, SHORT_VALUED, SIZES, SIZES_ALONE, VALUED

    options = {
        option: action.nargs != 0
        for action in run.get_args_parser()._actions
        for option in action.option_strings
        if option not in ("-h", "--help")
    }
    valued = {f"--{name}" for name in (*SIZES, *VALUED)} | set(SHORT_VALUED)
    alone = {f"--{name}" for name in (*SIZES_ALONE, *ALONE)} | {"-m"}
    assert {o.replace("_", "-") for o, takes in options.items() if takes} == valued
    assert {o.replace("_", "-") for o, takes in options.items() if not takes} == alone


def test_other_commands_are_not_torchrun() -> None:
    for line in ("python train.py torchrun", "python -m torchrun x.py", "torchrun.py x", ""):
        assert not is_torchrun(line.split())
