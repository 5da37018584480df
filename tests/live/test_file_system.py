"""A store on a network file system is refused; one on an unknown file system gets a note."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dovetail.core.errors import InputError
from dovetail.live.system.file_system import LOCAL, SHARED, check_local, file_system_of


def mounts(*rows: str) -> str:
    """A table with the device, the point and the type of each mount."""
    lines = []
    for number, row in enumerate(rows, start=22):
        device, point, kind = row.split()
        lines.append(f"{number} 1 {device} / {point} rw,relatime shared:1 - {kind} src rw")
    return "\n".join(lines)


TABLE = mounts(
    "8:1 / ext4",
    "0:50 /home nfs4",
    "0:51 /home/local xfs",
    "0:52 /mnt/with\\040space lustre",
    "0:53 /scratch fuse.glusterfs",
    "0:54 /odd newfs",
)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/dovetail", "nfs4"),
        ("/home/local/me", "xfs"),
        ("/homestead", "ext4"),
        ("/mnt/with space/x", "lustre"),
        ("/scratch", "fuse.glusterfs"),
    ],
)
def test_the_deepest_mount_above_a_path_says_its_file_system(path: str, kind: str) -> None:
    assert file_system_of(Path(path), TABLE) == kind


def test_a_mount_that_is_hidden_by_a_later_one_does_not_count(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    there = f"{os.major(device)}:{os.minor(device)}"
    table = mounts("0:60 / ext4", f"0:61 {tmp_path}/a nfs", f"{there} {tmp_path} tmpfs")
    assert file_system_of(tmp_path / "a" / "home", table) == "tmpfs"


def test_of_two_mounts_at_one_point_the_later_one_counts() -> None:
    table = mounts("8:1 / ext4", "0:70 /shared nfs", "0:71 /shared xfs")
    assert file_system_of(Path("/shared/home"), table) == "xfs"


@pytest.mark.parametrize("kind", sorted(SHARED | {"fuse.sshfs", "fuse.s3fs"}))
def test_a_network_file_system_is_refused_with_the_way_out(kind: str) -> None:
    with pytest.raises(InputError, match=rf"\({kind}\)") as refused:
        check_local(Path("/net/home"), mounts("8:1 / ext4", f"0:50 /net {kind}"))
    assert refused.value.where == "/net/home"
    assert "--home" in refused.value.mend


@pytest.mark.parametrize("kind", sorted(LOCAL))
def test_a_local_file_system_needs_no_note(kind: str) -> None:
    assert check_local(Path("/data/home"), mounts("8:1 / ext4", f"0:50 /data {kind}")) == ""


def test_an_unknown_file_system_gets_a_note_that_names_it() -> None:
    assert "(newfs)" in check_local(Path("/odd/home"), TABLE)
    assert "not in the table" in check_local(Path("/home"), "")


def test_the_table_of_this_machine_names_the_file_system_of_a_folder(tmp_path: Path) -> None:
    table = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    told = subprocess.run(
        ["stat", "--file-system", "--format=%T", tmp_path], capture_output=True, text=True
    ).stdout.strip()
    ours = file_system_of(tmp_path, table)
    same = {"ext2/ext3": {"ext2", "ext3", "ext4"}, "overlayfs": {"overlay"}}
    assert ours in same.get(told, {told})
