"""The papers' tables and figures, regenerated side by side with what they print.

A study is one module here with a `study: Study`, listed in `studies.STUDIES`. It is given a
`Setting` (where the traces are, how much effort) and a `Trials` (which plays many small runs on
all cores and remembers them), and returns `Findings`: rows with verdicts, pictures, notes.
`pages` writes them; `dovetail reproduce NAME` is the command.
"""
