"""Rewrites the recorded answers of Slurm 22.05 as later versions write them.

Numbers are wrapped, states are lists, and sinfo has one entry for each node and partition:
`src/plugins/data_parser/v0.0.4*/parsers.c` of Slurm 23.02 to 25.11.
"""

from __future__ import annotations

import json

WRAPPED = (
    "array_job_id",
    "array_task_id",
    "array_max_tasks",
    "het_job_id",
    "het_job_offset",
    "submit_time",
    "start_time",
    "eligible_time",
    "last_sched_evaluation",
    "time_limit",
    "priority",
    "node_count",
)


def newer_squeue(text: str) -> str:
    """Returns the answer of squeue as 24.11 writes it."""
    answer = json.loads(text)
    for job in answer["jobs"]:
        job["job_state"] = [job["job_state"]]
        for name in WRAPPED:
            value = job[name]
            wrapped = {"set": value is not None, "infinite": False, "number": value or 0}
            job[name] = wrapped
    return json.dumps(answer)


def newer_sinfo(text: str) -> str:
    """Returns the answer of sinfo as 24.11 writes it."""
    answer = json.loads(text)
    rows = [
        {
            "node": {"state": [node["state"].upper(), *node["state_flags"]]},
            "nodes": {"nodes": [node["name"]], "total": 1},
            "cpus": {"maximum": node["cpus"]},
            "memory": {"maximum": node["real_memory"]},
            "gres": {"total": node["gres"], "used": node["gres_used"]},
            "partition": {"name": partition},
        }
        for node in answer["nodes"]
        for partition in node["partitions"]
    ]
    return json.dumps({"sinfo": rows, "meta": answer["meta"], "errors": [], "warnings": []})
