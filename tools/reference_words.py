"""Meanings in the reference tables that the code does not spell out.

`tools.reference` fails if a name in the code has no entry here, or an entry here no name in the
code.
"""

STATES = {
    "PENDING": "it waits",
    "CONFIGURING": "its workers are starting",
    "RUNNING": "it runs",
    "COMPLETING": "its workers are ending",
    "COMPLETED": "it finished by itself",
    "FAILED": "its program failed",
    "CANCELLED": "its owner cancelled it",
    "TIMEOUT": "it reached its time limit",
    "NODE_FAIL": "its node was lost, and it may not be retried",
    "OUT_OF_MEMORY": "it used more memory than it may",
    "DEADLINE": "its deadline passed",
}

END_REASONS = {
    "NonZeroExitCode": "the program exited with an error",
    "RaisedSignal": "a signal ended the program",
    "JobLaunchFailure": "the program could not be executed, or lost its state",
    "OutOfMemory": "no memory left on its GPU, or its memory limit was reached",
    "NodeFail": "its node was lost",
    "TimeLimit": "it ran as long as its time limit",
    "IdleLimit": "it did not use its GPUs for as long as `up --reclaim-idle` allows",
    "DeadLine": "its deadline passed",
    "NoTrainJob": "it completed without using the range of GPUs it asked for",
    "RecordDamaged": "its record in the store cannot be read",
}

START_REASONS = {
    "AgentWaits": "`CONFIGURING`: its files are on their way, its folder hangs, or a prolog runs",
    "GpuMemoryHeld": "`CONFIGURING`: the driver has not yet freed the memory of an earlier worker",
}

NOT_REASONS = {"NaN", "Dove", "NvmlDevice", "NvmlEventSet"}
"""Words in the code of the controller that only look like reasons."""

ENVIRONMENT = {
    "DOVETAIL_HOME": ("commands", "the cluster's folder, where `--home` is not given"),
    "DOVETAIL_DATA": ("commands, tests", "the folder of public traces and profiles"),
    "DOVETAIL_JOB": ("every job, prolog and epilog", "the job's number"),
    "DOVETAIL_USER": ("prolog and epilog", "the owner of the job"),
    "DOVETAIL_GPUS": ("prolog and epilog", "the job's GPUs on the node, by UUID or slot"),
    "DOVETAIL_WORKDIR": ("prolog and epilog", "the working directory of the job"),
    "DOVETAIL_SOCKET": ("training worker", "the agent's socket; without it a script runs alone"),
    "DOVETAIL_WORKER": ("training worker", "`job/number`"),
    "DOVETAIL_TOKEN": ("training worker", "the secret the agent knows it by"),
    "DOVETAIL_FOLDER": ("training worker", "the job's folder for checkpoints"),
    "DOVETAIL_HOST": ("training worker", "its address for workers on other nodes; loopback"),
    "DOVETAIL_MEMORY_BYTES": ("training worker", "the GPU memory it may use when it starts"),
    "DOVETAIL_REPORT_S": ("training worker", "seconds between two reports; 1"),
    "DOVETAIL_CHECKPOINT_S": ("training worker", "seconds between checkpoints; the script's"),
    "DOVETAIL_STALL_S": ("training worker", "silence of another worker before it is reported; 60"),
    "DOVETAIL_PROFILE_STEPS": ("any script", "profile this many iterations per sub-batch and end"),
    "DOVETAIL_PROFILE_FILE": ("any script", "where the profile is written; standard output"),
}
"""Each variable: who reads it, and what it says."""

EVENTS = {
    "submitted": "a job joined the queue",
    "avoided": "a job is kept off nodes that failed it, until it is placed again (live)",
    "started": "a job was placed",
    "switched": "GPUs that were being prepared joined a job",
    "shrunk": "a job lost GPUs with a node and trains on",
    "retimed": "a neighbour came or went, or training reached another phase",
    "measured": "a running job reported its progress (live)",
    "foreseen": "a job was forecast anew (live)",
    "stopped": "a job lost its GPUs and waits again",
    "withdrawn": "a waiting job left the queue for a while: held, or to be retried (live)",
    "ended": "a job is over",
    "node": "a node is `up`, `draining` or `down`",
    "gpus": "GPUs that are `draining` or `down` by themselves, and jobs that may finish there",
    "warned": "the owner of a job was warned, in its output (live)",
    "woke": "the policy had asked to be called now",
    "learned": "measured speeds replaced believed ones (live)",
    "controller": "a controller is `recovering` or `ready` (live)",
    "refused": "a decision failed or was illegal; the plan stayed (live)",
    "explained": "why jobs wait, until the next such record",
}
