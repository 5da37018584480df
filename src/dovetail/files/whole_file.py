"""Writes a file that appears whole or not at all.

The content goes to a draft beside the file, which then takes its name. A reader sees the old
content or the new one, and a failure leaves the old one and no draft.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO

PRIVATE = 0o600
"""The mode of a file for its owner alone."""
USUAL = 0o666
"""The mode of other files; the umask takes from it, as it does from every mode."""
NAME_MAX = 100
"""Characters of the file's name in that of its draft: names of files are bounded."""

Fill = Callable[[IO[bytes]], object]
"""Writes the content to a stream."""


def write_whole(
    path: Path,
    content: bytes | str | Fill,
    *,
    mode: int = USUAL,
    synced: bool = True,
    folder_synced: bool = False,
) -> None:
    """Writes a file in place of an older one. Raises OSError; then nothing has changed.

    With `synced` the content has reached the disk before the file gets its name; with
    `folder_synced` the name has too when this returns. `mode` is narrowed by the umask.
    """
    draft, descriptor = _open_draft(path, mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if callable(content):
                content(stream)
            else:
                stream.write(content.encode() if isinstance(content, str) else content)
            if synced:
                # Without this a file system may keep the new name and lose the content, and
                # then neither the old file nor the new one is there.
                stream.flush()
                os.fsync(stream.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if folder_synced:
        _sync_folder(path.parent)


def _open_draft(path: Path, mode: int) -> tuple[Path, int]:
    """Returns a new file beside another, opened for writing.

    The name is drawn, so that two threads never share a draft, and O_EXCL follows no link that
    somebody has put there.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        draft = path.with_name(f".{path.name[:NAME_MAX]}.{secrets.token_hex(6)}")
        try:
            return draft, os.open(draft, flags, mode)
        except FileExistsError:
            continue


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
