"""The frame of every paper.

A paper is one folder: its `workloads` make jobs, its `experiments` have its runs (`PaperRun`: a
policy on a workload, at a cluster and options) and its grid of them (`Experiment`), its `claims`
are rows with the published value beside ours, its `plots` are figures. `Scope` finds the traces
and sets the effort, `Results` plays runs on all cores, `Paper` joins all of it, `page` writes and
prints a `Reproduction`, and `drawing` has the charts that several papers share.
"""
