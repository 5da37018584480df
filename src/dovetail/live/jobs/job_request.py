"""The request of a submitted job as policies see it: a row of the job table."""

from __future__ import annotations

from dovetail.core.job import JobRequest
from dovetail.wire.spec import JobSpec


def job_request(spec: JobSpec, number: int, submit_s: float) -> JobRequest:
    """Returns the request of a job as policies see it; its deadline counts from submission."""
    return JobRequest(
        job_id=str(number),
        submit_s=submit_s,
        gpus=spec.gpus,
        min_gpus=spec.min_gpus,
        max_gpus=spec.max_gpus,
        user=spec.user,
        account=spec.account,
        qos=spec.qos,
        reservation=spec.reservation,
        queue=spec.queue,
        recurrence=spec.recurrence,
        model=spec.model,
        gpu_type=spec.gpu_type,
        topology=spec.topology,
        priority=spec.priority,
        batch_size=spec.batch_size,
        cpus=spec.cpus,
        memory_bytes=spec.memory_bytes,
        time_limit_s=spec.time_limit_s,
        deadline_s=submit_s + spec.deadline_s,
        restart_s=spec.restart_s,
        elastic=spec.elastic,
        shareable=spec.shareable,
        preemptible=is_preemptible(spec),
    )


def is_preemptible(spec: JobSpec) -> bool:
    """Returns whether a policy may stop or move a job. A plain program must allow a new start."""
    return spec.preemptible and (spec.requeue or spec.keeps_progress)
