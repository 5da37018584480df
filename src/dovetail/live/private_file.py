"""Files that appear whole and that only their owner may read."""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, content: str, *, mode: int = 0o600, synced: bool = False) -> None:
    """Writes a file in place of an older one; with `synced` it is on disk when this returns."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(draft, flags, mode), "w", encoding="utf-8") as file:
            file.write(content)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
