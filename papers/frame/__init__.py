"""What every paper is made of.

A paper is one folder. Its `workloads` are jobs, its `experiments` say which runs are played
(workloads x policies x options), its `claims` set what the paper prints beside ours, its `plots`
draw the figures. `Scope` says where the traces are and how much effort to make, `Results` plays
runs on all cores and remembers what came of them, `Claim`, `Table` and `Plot` are what a
`Reproduction` holds, `page` writes and prints it, `drawing` is what several figures share.
"""
