"""Checks that the libraries which pages embed are byte for byte what their authors published.

    python -m tools.vendored                      the files against the hashes written beside them
    python -m tools.vendored uplot-1.6.32.tgz     and against the published package (`npm pack`)

Exit code 0: all as published; 1: it names each file that is not.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "src/dovetail/report/vendored"
MANIFEST = "vendored.toml"


def differences(folder: Path = FOLDER, packages: tuple[Path, ...] = ()) -> Iterator[str]:
    """Yields a sentence for each file that is missing, changed or not listed."""
    listed = tomllib.loads((folder / MANIFEST).read_text("utf-8"))["package"]
    known = {MANIFEST, *(name for package in listed for name in package["files"])}
    for path in sorted(folder.iterdir()):
        if path.name not in known:
            yield f"{path.name} is not listed in {MANIFEST}"
    for package in listed:
        for name, entry in package["files"].items():
            path = folder / name
            if not path.is_file():
                yield f"{name} is missing"
            elif hashlib.sha256(path.read_bytes()).hexdigest() != entry["sha256"]:
                yield f"{name} is not what {package['name']} {package['version']} published"
    for archive in packages:
        yield from _package_differences(folder, archive, listed)


def _package_differences(
    folder: Path, archive: Path, listed: list[dict[str, object]]
) -> Iterator[str]:
    digest = hashlib.sha512(archive.read_bytes()).digest()
    integrity = "sha512-" + base64.b64encode(digest).decode()
    package = next((p for p in listed if p["integrity"] == integrity), None)
    if package is None:
        yield f"{archive.name} is none of the published packages listed in {MANIFEST}"
        return
    files = package["files"]
    assert isinstance(files, dict)
    with tarfile.open(archive) as opened:
        for name, entry in files.items():
            member = opened.extractfile(entry["path"])
            if member is None or member.read() != (folder / name).read_bytes():
                yield f"{name} differs from {entry['path']} in {archive.name}"


def main() -> int:
    """Prints the differences; returns the exit code."""
    found = list(differences(packages=tuple(Path(word) for word in sys.argv[1:])))
    print("\n".join(found) or "all vendored files are as published")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
