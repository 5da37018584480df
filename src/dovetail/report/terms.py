"""The words of the report and what they mean: shown where they stand, and listed at its end."""

from __future__ import annotations

from typing import NamedTuple


class Term(NamedTuple):
    """A word of the page, and its meaning in one or two sentences."""

    word: str
    meaning: str


TERMS = {
    "policy": Term(
        "policy", "The rule that decides which job runs when and where, such as Slurm's backfill."
    ),
    "recorded": Term("recorded", "No policy: what happened, by the log itself."),
    "baseline": Term("baseline", "The policy that all others are compared with."),
    "jct": Term(
        "JCT", "Job completion time: from submission to finish. A mean counts each job once."
    ),
    "median": Term("median JCT", "Half of the jobs finish within this time, half take longer."),
    "p99": Term("99 % JCT", "99 of 100 jobs finish within this time."),
    "wait": Term(
        "wait",
        "All the time between submission and finish that a job has no GPU, also after it was "
        "stopped.",
    ),
    "start": Term(
        "time to first start",
        "From submission until the job first gets its GPUs. A job that starts soon and is "
        "stopped again can still wait long.",
    ),
    "interval": Term(
        "95 % interval",
        "Where the mean would lie in 95 of 100 periods like this one. Intervals of two policies "
        "may overlap although their ratio is sure: they ran the same jobs.",
    ),
    "ratio": Term(
        "vs baseline", "Mean JCT over the baseline's: 0.50x is half the time; below 1x is better."
    ),
    "bound": Term(
        "bound",
        "A mean JCT that no schedule can beat on these jobs and GPUs, whatever it knows. "
        "“x bound” says how many times the bound a policy takes; 1.00x is perfect.",
    ),
    "slowdown": Term(
        "slowdown", "Time in the system over the time the job needs alone on the GPUs it asked for."
    ),
    "makespan": Term("makespan", "From the first submission to the last finish."),
    "held": Term("GPUs held", "Share of all GPU-time that jobs hold, from first submission on."),
    "preemptions": Term("preemptions", "How often a running job lost its GPUs before its end."),
    "knows": Term(
        "knows",
        "What the policy is told of a job. True lengths are known in no real cluster: such rows "
        "show what knowing them would be worth.",
    ),
    "deployable": Term(
        "deployed today",
        "Starts jobs, does nothing else to them, and knows only what a site knows: users' time "
        "limits, or lengths predicted from earlier jobs.",
    ),
    "preemption": Term(
        "preemption", "Taking the GPUs of a running job for another; it goes on later."
    ),
    "known": Term(
        "known lengths",
        "Rows with “known” are the same policy, told how long each job will run. They are hatched, "
        "dashed and hollow.",
    ),
    "elasticity": Term(
        "elasticity", "Jobs run on more or fewer GPUs than they asked for, if they allow it."
    ),
    "powers": Term("may", "What the policy may do to a running job; else it only starts jobs."),
    "change": Term("change of the mean", "Mean JCT under the policy less that under the baseline."),
    "saved": Term(
        "saved",
        "Job-hours of waiting that the jobs of the row are spared (+) or that they wait longer (-) "
        "than under the baseline, all together.",
    ),
    "total": Term(
        "job-hours",
        "Jobs x change of their mean JCT: the hours that the jobs of the group lose (+) or "
        "gain (−) together.",
    ),
    "size": Term("size", "The number of GPUs that a job asked for."),
    "efficiency": Term(
        "cluster efficiency",
        "Speed of the running jobs, each in GPUs' worth of work, over the GPUs present.",
    ),
    "blocking": Term(
        "blocking index",
        "Of the waiting jobs, the mean of the time they have waited over the time they still need.",
    ),
    "useful": Term("useful work", "GPU-time in which jobs made progress at full speed."),
    "slowed": Term(
        "slowed down", "GPU-time lost to sharing, distance between GPUs, or poor scaling."
    ),
    "switching": Term(
        "switching", "GPU-time held without progress while jobs start, move or resume."
    ),
    "idle_waiting": Term(
        "idle, jobs wait",
        "Free GPUs while a job waits: they do not fit it, or the queue is strict.",
    ),
    "idle_empty": Term("idle, none wait", "Free GPUs, and no job to run."),
    "down": Term("node away", "GPU-time of nodes that were down or drained."),
}
