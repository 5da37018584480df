"""Plays the stories of some seeds again: `python tests/live/harness/again.py 57 [58 ...]`.

With the word `interrupted` before them it plays those in which agents are stopped.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.stage import cut_down, play
from harness.story import interrupted, story

seeds = [int(word) for word in sys.argv[1:] if word.isdecimal()]
for tale in map(interrupted if "interrupted" in sys.argv else story, seeds):
    outcome = play(tale)
    if outcome.wrong:
        print(cut_down(tale, outcome).told())
    else:
        print(tale.told(), *outcome.tale, "nothing was wrong", sep="\n")
