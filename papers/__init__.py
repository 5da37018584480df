"""The papers' tables and figures, regenerated side by side with what they print.

`python -m papers NAME` is the command. A paper is a folder with a `paper: Paper`, listed in
`frame.paper.PAPERS`.
"""
