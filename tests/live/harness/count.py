"""Plays many stories and counts what went wrong: for looking around, not for CI."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.stage import play
from harness.story import interrupted, story

LONGEST_S = 10
"""Of CPU: on a busy machine a story may wait much longer."""


def too_long(*_: object) -> None:
    raise TimeoutError("it takes too long")


signal.signal(signal.SIGPROF, too_long)
first, last = int(sys.argv[1]), int(sys.argv[2])
kinds: Counter[str] = Counter()
example: dict[str, int] = {}
begun = time.process_time()
tell = interrupted if "interrupted" in sys.argv[3:] else story
for seed in range(first, last):
    signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
    try:
        wrong = play(tell(seed)).wrong
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        wrong = (
            f"{type(error).__name__} {str(error)[:80]} {Path(frame.filename).name}:{frame.lineno}",
        )
    for text in wrong[:1]:
        kind = "".join("#" if c.isdigit() or c == "." else c for c in text)
        while "##" in kind:
            kind = kind.replace("##", "#")
        kind = kind[:110]
        kinds[kind] += 1
        example.setdefault(kind, seed)
took_s = time.process_time() - begun
for kind, times in kinds.most_common():
    print(f"{times:5d}  seed {example[kind]:5d}  {kind}")
print(f"{last - first} stories in {took_s:.1f} s of CPU, {sum(kinds.values())} failed")
