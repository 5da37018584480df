"""Draws the pictures of README and guides anew, from the comparison that `make demo` shows.

    python -m tools.pictures

Those of a reproduction are drawn with it: `python -m papers NAME -o FOLDER`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

IMAGES = Path(__file__).parents[1] / "docs/images"
PICTURES = {"mean-jct.png": "demo-mean-jct.png", "queue-lengths.png": "demo-queue.png"}
"""The files of `plots/` that a page shows, and their names there."""


def main() -> int:
    """Runs the demo, copies its pictures into docs/images, and names them; returns 0."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "demo"
        command = "from dovetail.cli.main import main; main()"
        subprocess.run(
            [sys.executable, "-c", command, "demo", "--output", str(output)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        for drawn, shown in PICTURES.items():
            shutil.copyfile(output / "plots" / drawn, IMAGES / shown)
            print(IMAGES / shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
