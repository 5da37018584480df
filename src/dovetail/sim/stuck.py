"""Why a simulated run cannot go on although jobs wait: the user's timeline, or the policy."""

from __future__ import annotations

from dovetail.core.errors import DovetailError, InputError
from dovetail.core.policy import Policy, name_of
from dovetail.core.view import View
from dovetail.sim.scene import Scene


def stuck(scene: Scene, policy: Policy, view: View) -> DovetailError:
    """Returns the error with the job that waits forever, and the cause."""
    job = view.waiting.first()
    assert job is not None
    name, gpus = scene.trace.jobs.job_id[job], int(view.jobs.gpus[job])
    if scene.capacity and view.placing.find(view.plan.occupancy, view.shape(job)) is None:
        return InputError(
            "--capacity",
            f"it leaves {view.plan.free_gpus} GPUs from {scene.capacity[-1][0]:g} s on, too few "
            f"for job {name}, which wants {gpus}",
            "let nodes return, or leave such jobs out",
        )
    return DovetailError(
        f"policy {name_of(policy)} leaves {len(view.waiting)} jobs waiting with "
        f"nothing left to happen; the first is job {name}, which wants {gpus} GPUs"
    )
