"""What the pages embed is what its authors published, and a changed byte is noticed."""

import io
import shutil
import tarfile
from pathlib import Path

from tools.vendored import FOLDER, differences


def test_the_embedded_libraries_are_as_published() -> None:
    assert list(differences()) == []


def test_a_changed_a_missing_and_a_stray_file_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "vendored"
    shutil.copytree(FOLDER, folder)
    script = folder / "uPlot.iife.min.js"
    script.write_bytes(script.read_bytes() + b" ")
    (folder / "uPlot.LICENSE").unlink()
    (folder / "more.js").write_text("")
    assert sorted(differences(folder)) == [
        "more.js is not listed in vendored.toml",
        "uPlot.LICENSE is missing",
        "uPlot.iife.min.js is not what uplot 1.6.32 published",
    ]


def test_a_package_with_another_hash_is_not_taken_for_the_published_one(tmp_path: Path) -> None:
    archive = tmp_path / "uplot-1.6.32.tgz"
    with tarfile.open(archive, "w:gz") as opened:
        body = (FOLDER / "uPlot.iife.min.js").read_bytes()
        member = tarfile.TarInfo("package/dist/uPlot.iife.min.js")
        member.size = len(body)
        opened.addfile(member, io.BytesIO(body))
    assert list(differences(packages=(archive,))) == [
        "uplot-1.6.32.tgz is none of the published packages listed in vendored.toml"
    ]


def test_every_library_ships_with_its_licence() -> None:
    assert "Permission is hereby granted" in (FOLDER / "uPlot.LICENSE").read_text()
