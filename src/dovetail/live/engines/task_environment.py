"""The variables by which one of several processes of a job knows the others.

torchrun's, complete: a program that it could have started finds what it would have found. Slurm's
for jobs that want them, set as `sbatch` and `srun` set them. A job that runs once gets none of
torchrun's: programs with `RANK` in their environment take themselves for one of several.
"""

from __future__ import annotations

from dovetail.core.host_list import counted, host_list
from dovetail.wire.agent import StartWorker

ROLE = "default"
"""What torchrun calls the role of workers if nobody names one."""
PORT_USUAL = "29500"
NAMES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
"""torchrun's variables without a prefix of their own."""


def task_environment(order: StartWorker) -> dict[str, str]:
    """Returns the variables of a plain process about itself and the others of its job."""
    variables: dict[str, str] = {}
    if order.distributed:
        variables = torchrun_options(order) if order.per_node else torchrun(order)
    return variables | (slurm(order) if order.slurm_variables else {})


def torchrun(order: StartWorker) -> dict[str, str]:
    """Returns the variables that torchrun sets, apart from OMP_NUM_THREADS."""
    host, port = _meeting(order)
    return {
        "RANK": str(order.rank),
        "WORLD_SIZE": str(order.world_size),
        "LOCAL_RANK": str(order.local_rank),
        "LOCAL_WORLD_SIZE": str(order.local_world_size),
        "GROUP_RANK": str(order.group_rank),
        "GROUP_WORLD_SIZE": str(order.group_world_size),
        "ROLE_RANK": str(order.rank),
        "ROLE_WORLD_SIZE": str(order.world_size),
        "ROLE_NAME": ROLE,
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": str(order.job),
        "TORCHELASTIC_RESTART_COUNT": str(order.restarts),
        "TORCHELASTIC_MAX_RESTARTS": str(order.retries),
        # The process of rank 0 opens the store: no agent of torchrun did it before.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }


def torchrun_options(order: StartWorker) -> dict[str, str]:
    """Returns the variables that torchrun reads in place of options, for its process on a node.

    Its workers meet at an address that is known, so it needs no rendezvous of its own.
    """
    host, port = _meeting(order)
    return {
        "PET_NNODES": str(order.group_world_size),
        "PET_NPROC_PER_NODE": str(len(order.all_gpus)),
        "PET_NODE_RANK": str(order.group_rank),
        "PET_MASTER_ADDR": host,
        "PET_MASTER_PORT": port,
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ID": str(order.job),
        # A failure is the job's: only all of its nodes together can start anew.
        "PET_MAX_RESTARTS": "0",
    }


def _meeting(order: StartWorker) -> tuple[str, str]:
    """Returns host and port at which the processes of a job meet."""
    host, _, port = order.master.rpartition(":")
    return host.strip("[]") or "127.0.0.1", port or PORT_USUAL


def slurm(order: StartWorker) -> dict[str, str]:
    """Returns Slurm's variables of one task; the number of tasks only if the user gave it."""
    variables = {
        "SLURM_PROCID": str(order.rank),
        "SLURM_LOCALID": str(order.local_rank),
        "SLURM_NODEID": str(order.group_rank),
        "SLURM_NNODES": str(order.group_world_size),
        "SLURM_JOB_NUM_NODES": str(order.group_world_size),
        "SLURM_GPUS_ON_NODE": str(len(order.local_gpus) or 1),
    }
    if order.nodes:
        names = host_list(order.nodes)
        variables |= {
            "SLURM_JOB_NODELIST": names,
            "SLURM_NODELIST": names,
            "SLURM_TASKS_PER_NODE": counted(order.tasks_on_nodes),
            "SLURMD_NODENAME": order.nodes[order.group_rank],
        }
    ntasks = order.slurm_ntasks
    if ntasks:
        variables |= {"SLURM_NTASKS": str(ntasks), "SLURM_NPROCS": str(ntasks)}
    if ntasks == order.local_world_size * order.group_world_size:
        variables["SLURM_NTASKS_PER_NODE"] = str(order.local_world_size)
    return variables
