"""The folder of a cluster: private, and of one controller at a time."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dovetail.core.errors import InputError
from dovetail.live.store.database import Database
from dovetail.live.store.folder import Folder

HOLD = """
import sys
import tempfile
from pathlib import Path
from dovetail.live.store.folder import Folder
lock = Folder(Path(sys.argv[1])).lock()
print("held", flush=True)
sys.stdin.read()
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_everything_in_it_is_its_owners_alone(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "home")
    previous = os.umask(0)
    try:
        folder.make()
        folder.make()
        assert folder.keep_script(3, "#!/bin/sh\n") == tmp_path / "home" / "jobs" / "3" / "script"
        token = folder.token()
        folder.lock().release()
    finally:
        os.umask(previous)
    assert folder.token() == token and len(token) > 40
    assert Folder(tmp_path / "home").token() == token
    made = {p.relative_to(folder.home).as_posix(): mode(p) for p in folder.home.rglob("*")}
    assert made == {
        "jobs": 0o700,
        "jobs/3": 0o700,
        "jobs/3/script": 0o700,
        "nodes": 0o700,
        "lock": 0o600,
        "token": 0o600,
    }
    assert mode(folder.home) == 0o700


def test_a_home_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o755)
    with pytest.raises(InputError, match="chmod 700"):
        Folder(home).make()
    assert list(home.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used"):
        Folder(tmp_path / "file").make()


@pytest.mark.parametrize("name", ["lock", "token", "store.db", "nodes", "jobs"])
def test_nothing_of_a_cluster_is_kept_through_a_link(tmp_path: Path, name: str) -> None:
    folder = Folder(tmp_path / "home")
    folder.home.mkdir(mode=0o700)
    elsewhere = tmp_path / "elsewhere"
    if name in ("nodes", "jobs"):
        elsewhere.mkdir()
    (folder.home / name).symlink_to(elsewhere)

    def open_all() -> None:
        folder.make()
        folder.token()
        Database(folder.store).close()
        folder.lock().release()

    with pytest.raises(InputError, match="it is a symbolic link") as refused:
        open_all()
    assert refused.value.where == str(folder.home / name)
    assert "remove the link" in str(refused.value)
    assert not elsewhere.is_file() and not (elsewhere.is_dir() and list(elsewhere.iterdir()))


@pytest.mark.parametrize("name", ["controller.log", "nodes/agent.log", "nodes/agent.lock"])
def test_no_log_follows_a_link(tmp_path: Path, name: str) -> None:
    home, target = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp")), tmp_path / "precious"
    target.write_text("mine")
    (home / name).parent.mkdir(mode=0o700, exist_ok=True)
    (home / name).symlink_to(target)
    words = [sys.executable, "-m", "dovetail", "up", "--home", str(home), "--engine", "local:1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert f"{home / name}: it is a symbolic link" in done.stderr
    assert target.read_text() == "mine"
    shutil.rmtree(home)


def test_a_script_is_written_whole_and_again_when_it_was_damaged(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "home")
    folder.make()
    script = "#!/bin/sh\necho $HOME `id`\n"
    path = folder.keep_script(1, script)
    before = path.stat().st_ino
    assert folder.keep_script(1, script).stat().st_ino == before
    path.write_text("#!/bin/sh\nec")
    assert folder.keep_script(1, script).read_text() == script
    assert [p.name for p in path.parent.iterdir()] == ["script"]


def test_one_controller_at_a_time_and_the_lock_dies_with_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "home")
    folder.make()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder.home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=f"process {holder.pid}"):
            folder.lock()
    finally:
        holder.kill()
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()
    lock = folder.lock()
    with pytest.raises(InputError, match="runs here already"):
        folder.lock()
    lock.release()
    folder.lock().release()
