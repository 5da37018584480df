"""Batch scripts: what the `#SBATCH` lines of users mean here."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from dovetail.core.errors import InputError
from dovetail.jobspec.files import SpecFile, Submitter, read_spec
from dovetail.jobspec.sbatch_options import ALIAS, BARE, FLAGS, KNOWN, NO_VALUE, SHORT
from dovetail.jobspec.values import slurm_seconds
from dovetail.wire.spec import Dependency, JobSpec

NOW = datetime(2026, 3, 1, 12, 0, 0)
BODY = "\necho $HOME `id`\n#SBATCH --gpus=99\n"


def read(folder: Path, *lines: str, arguments: tuple[str, ...] = (), **by: Any) -> SpecFile:
    path = folder / "train.sh"
    path.write_text("\n".join(("#!/bin/bash -l", *lines)) + BODY)
    return read_spec(path, Submitter(folder, now=NOW, **by), arguments)


def one(folder: Path, *lines: str, **by: Any) -> JobSpec:
    (submission,) = read(folder, *lines, **by).submissions
    return submission.spec


def refused(folder: Path, *lines: str, **by: Any) -> str:
    with pytest.raises(InputError) as error:
        read(folder, *lines, **by)
    return str(error.value)


def test_a_script_of_slurm_is_a_job(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    reading = read(
        tmp_path,
        "# a comment",
        "",
        "#SBATCH --job-name=resnet --partition research   # both on one line",
        "#SBATCH -N 2",
        "#SBATCH --gpus-per-node=a100:4",
        "#SBATCH -t 1-12:30:00",
        "#SBATCH -D code",
        "#SBATCH -o %x-%A_%a.out",
        "#SBATCH --array=0-3,8",
        "#SBATCH --dependency=afterok:12:13,afterany:4",
        "#SBATCH --mem=64G --cpus-per-task=4",
        "#SBATCH --no-requeue --hold",
        "#SBATCH --signal=B:TERM@90",
        "#SBATCH --export=EPOCHS=3,DATA",
        "#SBATCH --mail-type=END --mail-user=a@b.c",
        arguments=("--fast", "$HOME"),
        own={"DATA": "/data"},
    )
    (submission,) = reading.submissions
    script = (tmp_path / "train.sh").read_text()
    assert submission.array == (0, 1, 2, 3, 8)
    assert submission.spec == JobSpec(
        name="resnet",
        command=("--fast", "$HOME"),
        workdir=str(tmp_path / "code"),
        script=script,
        queue="research",
        gpus=8,
        min_gpus=8,
        max_gpus=8,
        gpu_type="a100",
        time_limit_s=36 * 3600 + 1800.0,
        output=str(tmp_path / "code/resnet-%A_%a.out"),
        after=(Dependency("afterok", 12), Dependency("afterok", 13), Dependency("afterany", 4)),
        memory_bytes=128 * 2.0**30,
        cpus=4.0,
        requeue=False,
        hold=True,
        grace_s=90.0,
        environment=(("EPOCHS", "3"), ("DATA", "/data")),
        slurm_variables=True,
    )
    assert reading.ignored == (
        f"{tmp_path}/train.sh, line 5: --nodes has no effect: the policy chooses the nodes",
        f"{tmp_path}/train.sh, line 16: --mail-type has no effect: no mail is sent",
        f"{tmp_path}/train.sh, line 16: --mail-user has no effect: no mail is sent",
    )


def test_a_script_without_directives_runs_on_one_gpu(tmp_path: Path) -> None:
    reading = read(tmp_path)
    script = (tmp_path / "train.sh").read_text()
    assert reading.submissions[0].spec == JobSpec(
        "train.sh", (), str(tmp_path), script, slurm_variables=True
    )
    assert reading.ignored == ()


@pytest.mark.parametrize(
    ("said", "expected_s"),
    [
        ("30", 1800),
        ("30:15", 1815),
        ("2:30:15", 9015),
        ("2-3", 2 * 86400 + 3 * 3600),
        ("2-3:15", 2 * 86400 + 3 * 3600 + 900),
        ("2-3:15:10", 2 * 86400 + 3 * 3600 + 910),
        ("0:90", 90),
        ("UNLIMITED", float("inf")),
    ],
)
def test_times_have_the_six_forms_of_slurm(said: str, expected_s: float) -> None:
    assert slurm_seconds(said) == expected_s


@pytest.mark.parametrize("said", ["", "x", "1:2:3:4", "-5", "1-", "1.5", "1-2-3", "٣", "1:"])
def test_other_times_are_refused(said: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        slurm_seconds(said)


@pytest.mark.parametrize(
    ("said", "gpus", "kind"),
    [
        ("--ntasks=4", 4, ""),
        ("-n4", 4, ""),
        ("-n 4 --gpus=4", 4, ""),
        ("--gpus=a100:2", 2, "a100"),
        ("-G 2", 2, ""),
        ("--gres=gpu:2", 2, ""),
        ("--gres=gpu", 1, ""),
        ("--gres=gpu:a100", 1, "a100"),
        ("--gres=gpu:a100:2 --nodes=3", 6, "a100"),
        ("--gpus-per-node=4 --nodes=2", 8, ""),
        ("--gpus-per-node=4 --nodes=2 --ntasks-per-node=4", 8, ""),
        ("--gpus-per-task=1 --ntasks=6", 6, ""),
        ("--ntasks-per-node=2 -N3", 6, ""),
        ("--nodes=2", 2, ""),
        ("--gpus=2 --gpus=3", 3, ""),
        ("--gpus=2 --constraint=a100|v100", 2, "a100|v100"),
        ("--gpus=2 -C [a100|v100]", 2, "a100|v100"),
        ("--gpus=a100|v100:2", 2, "a100|v100"),
        ("--gpus=a100:2 -C a100", 2, "a100"),
    ],
)
def test_gpus_are_counted_as_slurm_counts_them(
    tmp_path: Path, said: str, gpus: int, kind: str
) -> None:
    spec = one(tmp_path, f"#SBATCH {said}")
    assert (spec.gpus, spec.min_gpus, spec.max_gpus, spec.gpu_type) == (gpus, gpus, gpus, kind)


@pytest.mark.parametrize(
    ("said", "cpus", "memory_bytes"),
    [
        ("--mem=512", 0.0, 512 * 2.0**20),
        ("--mem=2G --nodes=3", 0.0, 6 * 2.0**30),
        ("--mem-per-gpu=2G --gpus=4", 0.0, 8 * 2.0**30),
        ("--mem-per-cpu=1G --cpus-per-task=2 --gpus=4 --ntasks=4", 8.0, 8 * 2.0**30),
        ("--cpus-per-gpu=3 --gpus=2", 6.0, 0.0),
        ("--mem=0", 0.0, 0.0),
    ],
)
def test_cpus_and_memory_are_of_the_whole_job(
    tmp_path: Path, said: str, cpus: float, memory_bytes: float
) -> None:
    spec = one(tmp_path, f"#SBATCH {said}")
    assert (spec.cpus, spec.memory_bytes) == (cpus, memory_bytes)


@pytest.mark.parametrize(
    ("said", "field", "expected"),
    [
        ("--time=0", "time_limit_s", float("inf")),
        ("--deadline=now+2hours", "deadline_s", 7200.0),
        ("--deadline=now+60", "deadline_s", 60.0),
        ("--deadline=2026-03-02T12:00", "deadline_s", 86400.0),
        ("--signal=USR1", "grace_s", 60.0),
        ("--signal=10@5", "grace_s", 5.0),
        ("--nice=5", "priority", -5.0),
        ("--nice=-5", "priority", 5.0),
        ("--priority=7", "priority", 7.0),
        ("--requeue", "requeue", True),
        ("--oversubscribe", "shareable", True),
        ("-s", "shareable", True),
        ("--exclusive", "shareable", False),
        ("--export=NONE", "environment", ()),
        ("--begin=now+1hour", "begin_s", 3600.0),
        ("--begin=now", "begin_s", 0.0),
        ("-b 16:00", "begin_s", 4 * 3600.0),
        ("--begin=12:00", "begin_s", 24 * 3600.0),
        ("--begin=09:30:30", "begin_s", 21.5 * 3600.0 + 30),
        ("--begin=tomorrow", "begin_s", 12 * 3600.0),
        ("--begin=midnight", "begin_s", 12 * 3600.0),
        ("--begin=teatime", "begin_s", 4 * 3600.0),
        ("--deadline=18:00", "deadline_s", 6 * 3600.0),
        ("--array=0-9%2", "at_once", 2),
        ("--array=0-9", "at_once", 0),
        (
            "--dependency=afterok:1_3:4",
            "after",
            (Dependency("afterok", 1, task=3), Dependency("afterok", 4)),
        ),
        ("--depend=singleton", "after", (Dependency("singleton"),)),
        ("-d aftercorr:7", "after", (Dependency("aftercorr", 7),)),
        ("--kill-on-invalid-dep=yes", "kill_on_invalid_dep", True),
        ("--kill-on-invalid-dep=no", "kill_on_invalid_dep", False),
        ("--signal=RB:TERM@5", "grace_s", 5.0),
        ("--nice", "priority", -100.0),
        ("--requeue --no-requeue", "requeue", False),
        ("--no-requeue --requeue", "requeue", True),
        ("--tasks-per-node=1", "gpus", 1),
        ("-N 2-2", "gpus", 2),
        ("--output=%x-%4j-%u.out", "output", "{folder}/train.sh-%4j-%u.out"),
        ("--output=/dev/null", "output", "/dev/null"),
        (
            "--container-image='nvcr.io#nvidia/pytorch:24.01'",
            "container_image",
            "nvcr.io#nvidia/pytorch:24.01",
        ),
        ("--container-image=./a.sif --container-writable", "container_image", "{folder}/a.sif"),
        ("--export=\"ALL,A='x,y'\"", "environment", (("A", "x,y"),)),
    ],
)
def test_other_options_have_their_field(
    tmp_path: Path, said: str, field: str, expected: object
) -> None:
    if isinstance(expected, str):
        expected = expected.format(folder=tmp_path)
    assert getattr(one(tmp_path, f"#SBATCH {said}"), field) == expected


def test_what_slurm_has_no_word_for_stands_on_lines_of_our_own(tmp_path: Path) -> None:
    spec = one(
        tmp_path,
        "#SBATCH --gpus=2",
        "#DOVETAIL gpus=1..4 trains=yes model=resnet50",
        "#DOVETAIL --batch_size=64 environment=A=1,B=2",
    )
    assert (spec.min_gpus, spec.gpus, spec.max_gpus) == (1, 1, 4)
    assert (spec.trains, spec.model, spec.batch_size) == (True, "resnet50", 64)
    assert spec.environment == (("A", "1"), ("B", "2"))
    kept = one(tmp_path, "#SBATCH --gpus=2", "#DOVETAIL min_gpus=1 max_gpus=4 trains=yes")
    assert (kept.min_gpus, kept.gpus, kept.max_gpus) == (1, 2, 4)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("#SBATCH --gpu=2", "line 2: unknown option '--gpu' (did you mean 'gpus'?)"),
        ("#SBATCH --jobname=x", "did you mean 'job-name'?"),
        ("#SBATCH -Z 2", "unknown option '-Z'"),
        ("#SBATCH 2", "'2' is not an option"),
        ("#SBATCH --gpus", "--gpus needs a value"),
        ("#SBATCH --gpus=two", "--gpus=two is not a number of GPUs"),
        ("#SBATCH --gpus=0", "every job needs a GPU"),
        ("#SBATCH --gres=shard:2", "--gres=shard:2 is not supported"),
        ("#SBATCH --gpus=4 --ntasks=3", "line 2: --ntasks: 3 tasks cannot share 4 GPUs evenly"),
        ("#SBATCH --gpus=1 --ntasks=4", "line 2: --ntasks: 4 tasks cannot share 1 GPUs evenly"),
        ("srun python x.py", "line 2: srun is not supported: there is no Slurm"),
        ("#SBATCH --gpus=4 --gpus-per-node=4 --nodes=2", "--gpus means 4, --gpus-per-node means 8"),
        ("#SBATCH --nodes=1-4", "--nodes must be one number"),
        ("#SBATCH --ntasks=x", "--ntasks: 'x' is not a whole number"),
        ("#SBATCH --mem=lots", "--mem: 'lots' is not a size"),
        ("#SBATCH --mem-per-cpu=1G", "--mem-per-cpu needs --cpus-per-task"),
        ("#SBATCH --time=soon", "'soon' is not a duration"),
        ("#SBATCH --array=0-9%0", "'%0' is not a number of tasks from 1 to 10000"),
        ("#SBATCH --array=0-9%", "'%' is not a number of tasks"),
        ("#SBATCH --array=0-9%2%3", "'%2%3' is not a number of tasks"),
        ("#SBATCH --dependency=singleton:3", "'singleton:3' takes no job"),
        ("#SBATCH --dependency=expand:3", "'expand:3' must begin with one of after, afterok,"),
        ("#SBATCH --dependency=after:12+5", "a delay (+) is not supported: use the field begin"),
        (
            "#SBATCH --dependency=afterok:1?afterok:2",
            "separate jobs by commas to wait for all of them",
        ),
        ("#SBATCH --dependency=afterok:1_2_3", "'1_2_3' is neither a job number"),
        ("#SBATCH --signal=B:@", "--signal must look like B:TERM@60"),
        ("#SBATCH --deadline=2020-01-01", "2020-01-01 is in the past"),
        ("#SBATCH --deadline=now+2moons", "has an unknown unit"),
        ("#SBATCH --deadline=someday", "--deadline: 'someday' is not a date or time"),
        ("#SBATCH --begin=25:00", "--begin: '25:00' is not a date or time"),
        ("#SBATCH --begin=2020-01-01", "--begin: 2020-01-01 is in the past"),
        ("#SBATCH --signal=FOO@60", "--signal must look like B:TERM@60"),
        ("#SBATCH --signal=TERM@70000", "--signal must look like B:TERM@60"),
        ("#SBATCH --mem=4G --mem-per-gpu=2G", "--mem and --mem-per-gpu are mutually exclusive"),
        (
            "#SBATCH -c 2 --cpus-per-gpu=2",
            "--cpus-per-task and --cpus-per-gpu are mutually exclusive",
        ),
        ("#SBATCH --ntasks=0", "--ntasks must be 1 or more"),
        ("#SBATCH --cpus-per-task=0", "--cpus-per-task must be 1 or more"),
        ("#SBATCH --hold=no", "--hold takes no value"),
        ("#SBATCH --partition=a,b", "--partition lists several queues (specify one)"),
        ("#SBATCH --test-only", "dovetail submit --test-only"),
        ("#SBATCH hetjob", "heterogeneous jobs are not supported"),
        ("#SBATCH --", "'--' is not an option"),
        ("#SBATCH --xyzzy", "unknown option '--xyzzy' (remove it"),
        ("#SBATCH --gp=2", "unknown option '--gp'"),
        ("#SBATCH --export=UNSET", "'UNSET' has no value"),
        ("#SBATCH --chdir=/", "is outside"),
        ("#SBATCH --output=../x.log", "contains '..'"),
        ("#SBATCH --output=%N.log", "'%N' is unknown"),
        ("#SBATCH --nodelist=n1", "--nodelist is not supported (the policy chooses the nodes"),
        ("#SBATCH --wrap=x", "--wrap is not supported"),
        ("#SBATCH --container=/bundle", "--container is not supported (name an image, as in"),
        ("#SBATCH --container-mount-home", "mount what the job needs"),
        ("#SBATCH --container-mounts=/data:/data", "--container-mounts: they are for a container"),
        ("#SBATCH --job-name='x", "cannot split the text into words"),
        ("#SBATCH --job-name=a/b", "name: a name has a character"),
        ("#DOVETAIL gpus", "'gpus' is not FIELD=VALUE"),
        ("#DOVETAIL mingpus=1", "did you mean 'min_gpus'?"),
        ("#DOVETAIL command=x", "a script cannot set the field 'command'"),
        ("#DOVETAIL gpus=1..4", "or has checkpoints of its own, can change"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_line(
    tmp_path: Path, line: str, sentence: str
) -> None:
    said = refused(tmp_path, line)
    assert sentence in said
    assert "train.sh, line 2" in said


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("--error=x.err", "errors go to the output file"),
        ("--signal=B:USR1@60", "USR1 is not sent"),
        ("--export=ALL", "the environment is not copied"),
        ("--wckey=a", "use is not counted by key"),
        ("--verbose", "it changes only the output of sbatch"),
        ("--mem=0", "here it requests none"),
        ("--gres-flags=enforce-binding", "processes are not bound"),
        ("--profile=all", "nothing is sampled"),
        ("--reboot", "nodes are not booted"),
    ],
)
def test_what_has_no_effect_is_said(tmp_path: Path, said: str, why: str) -> None:
    (ignored,) = read(tmp_path, f"#SBATCH {said}").ignored
    assert "train.sh, line 2" in ignored and why in ignored


@pytest.mark.parametrize(
    ("said", "topology"),
    [
        ("--nodes=1 --gpus=4", "node"),
        ("-N1 --gres=gpu:2", "node"),
        ("--nodes=1 --gpus=1", ""),
        ("--nodes=2 --gpus=4", ""),
        ("--gpus=4", ""),
    ],
)
def test_one_node_is_demanded_where_the_script_says_one(
    tmp_path: Path, said: str, topology: str
) -> None:
    assert one(tmp_path, f"#SBATCH {said}").topology == topology


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("--constraint=a100&nvlink", "list types of GPU, as in a100|v100"),
        ("--gpus=a100:2 -C v100", "--constraint=v100 contradicts GPUs of type a100"),
    ],
)
def test_constraints_that_are_no_list_of_types_are_refused(
    tmp_path: Path, said: str, why: str
) -> None:
    assert why in refused(tmp_path, f"#SBATCH {said}")


def test_errors_beside_the_output_need_no_word(tmp_path: Path) -> None:
    assert read(tmp_path, "#SBATCH -o x.log -e x.log -N 1").ignored == ()


def test_a_script_names_its_interpreter(tmp_path: Path) -> None:
    path = tmp_path / "x.sh"
    path.write_text("echo\n")
    with pytest.raises(InputError, match=r"x\.sh, line 1: a batch script must begin"):
        read_spec(path, Submitter(tmp_path))


def test_names_stand_for_known_options() -> None:
    assert {*SHORT.values(), *ALIAS.values(), *FLAGS, *BARE, *NO_VALUE} <= KNOWN


@pytest.mark.parametrize(
    ("lines", "line", "note"),
    [
        (("#SBATCH --ntasks=2",), 2, "the script runs 2 times in parallel, once for each task"),
        (("#SBATCH -N2 --ntasks-per-node=2",), 2, "the script runs 4 times in parallel"),
        (("#SBATCH -n2", "exec torchrun x"), 3, "each of the 2 tasks calls torchrun: remove it"),
        (("#SBATCH -n2", "python -m torch.distributed.run x"), 3, "each of the 2 tasks calls pyt"),
        (("#SBATCH --exclusive",), 2, "--exclusive: no other job shares its GPUs, but other jobs"),
        (
            ("# SBATCH --gpus=2",),
            2,
            "this line is a comment: a directive begins with exactly #SBATCH",
        ),
        (("#sbatch --gpus=2",), 2, "this line is a comment"),
        ((" #SBATCH --gpus=2",), 2, "this line is a comment"),
        (("set -e", "#SBATCH --gpus=2"), 3, "#SBATCH after the first command has no effect"),
        (("set -e", "#DOVETAIL gpus=2"), 3, "#DOVETAIL after the first command has no effect"),
    ],
)
def test_what_a_user_of_slurm_may_not_expect_is_said(
    tmp_path: Path, lines: tuple[str, ...], line: int, note: str
) -> None:
    notes = read(tmp_path, *lines).notes
    assert any(n.startswith(f"{tmp_path}/train.sh, line {line}: {note}") for n in notes), notes


def test_what_is_as_everywhere_needs_no_word(tmp_path: Path) -> None:
    for lines in (
        ("##SBATCH --gpus=2", "#SBATCH--gpus=1"),
        ("#SBATCH --gpus=2",),
        ("#SBATCH --nodes=2 --gres=gpu:2",),
        ("#SBATCH --gpus=2 --ntasks=1", "torchrun --nproc_per_node=2 x.py"),
        ("#SBATCH --ntasks=2", "#DOVETAIL trains=yes"),
    ):
        path = tmp_path / "x.sh"
        path.write_text("\n".join(("#!/bin/sh", *lines)))
        assert read_spec(path, Submitter(tmp_path)).notes == ()


def test_a_directive_needs_no_space(tmp_path: Path) -> None:
    assert one(tmp_path, "#SBATCH--gpus=2").gpus == 2


@pytest.mark.parametrize(
    ("said", "gpus", "ntasks", "tasks"),
    [
        ("--gres=gpu:2", 2, 0, 1),
        ("--gpus=4 --ntasks=2", 4, 2, 2),
        ("--ntasks=2", 2, 2, 2),
        ("--gpus-per-task=2 --ntasks=2", 4, 2, 2),
        ("--nodes=2 --gpus-per-node=4 --ntasks-per-node=1", 8, 2, 2),
        ("--gpus=2 --ntasks=1", 2, 1, 1),
    ],
)
def test_a_script_runs_once_unless_it_asks_for_tasks(
    tmp_path: Path, said: str, gpus: int, ntasks: int, tasks: int
) -> None:
    found = one(tmp_path, f"#SBATCH {said}")
    assert (found.gpus, found.ntasks, found.tasks) == (gpus, ntasks, tasks)
    assert found.slurm_variables


def test_the_cpus_of_a_task_are_counted_once_for_each_task(tmp_path: Path) -> None:
    assert one(tmp_path, "#SBATCH --gres=gpu:2 --cpus-per-task=8").cpus == 8
    assert one(tmp_path, "#SBATCH --gpus=2 --ntasks=2 --cpus-per-task=8").cpus == 16
    assert one(tmp_path, "#SBATCH --gpus=2 --cpus-per-gpu=8").cpus == 16


def test_the_tasks_of_a_training_program_are_for_slurm_alone(tmp_path: Path) -> None:
    found = one(tmp_path, "#SBATCH --ntasks=2", "#DOVETAIL gpus=1..4 trains=yes")
    assert (found.ntasks, found.min_gpus, found.max_gpus) == (0, 1, 4)


def test_a_script_has_the_line_ends_of_its_interpreter(tmp_path: Path) -> None:
    path = tmp_path / "dos.sh"
    path.write_bytes(b"#!/bin/bash\r\n#SBATCH --gpus=1\r\necho hi\r\n")
    with pytest.raises(InputError, match="line ends of DOS"):
        read_spec(path, Submitter(tmp_path))
