"""What each mechanism of GIMBAL adds, on seeded traces on 16 GPUs as in its section 7.3.

    python -m benchmarks.gimbal_ablation --traces 10
    python -m benchmarks.gimbal_ablation --traces 10 --interference 1.2 --score-limit 4

100 jobs of 1 to 8 GPUs and of models of the zoo, arriving over eight hours on 8 nodes of 2 GPUs of
48 GB, with deadlines of 1.5 to 2.5 times the length. In turn: the upper scheduler; with unequal
packing; with samples moved (LISS); with limits as well (LGRR); for completion times also with a
goal that looks ahead (`examples/early_ends.py`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.gimbal_search import MODELS
from dovetail.core.cluster import Cluster
from dovetail.core.job import Floats, JobTable, Labels
from dovetail.core.policy import parse_policy
from dovetail.core.trace import Trace
from dovetail.forecast.forecasts import Known
from dovetail.physics.placed import placed_physics
from dovetail.physics.sharing.interference import MEASURED, parse_interference
from dovetail.physics.zoo.models import shipped
from dovetail.sim.scene import Scene
from papers.frame.experiment import play_scene

HOURS = 8
JOBS = 100
SIZES, WEIGHTS = (1, 2, 4, 8), (0.45, 0.3, 0.15, 0.1)
STEPS = ("unequal packing", "+ LISS", "+ LGRR", "looking ahead")
AHEAD = f"{Path(__file__).resolve().parents[1]}/examples/early_ends.py:EarlyEnds"


def upper(plain: str, bold: str, goal: str) -> dict[str, str]:
    """Returns the policies of the ablation: the scheduler, and one mechanism more at a time."""
    off = {"unequal packing": ",liss=false,lgrr=false", "+ LISS": ",lgrr=false", "+ LGRR": ""}
    policies = {step: f"gimbal:inner={bold},goal={goal}{less}" for step, less in off.items()}
    if goal == "jct":
        policies["looking ahead"] = f"gimbal:inner={bold},goal={AHEAD}"
    return {"alone": plain, **policies}


def drawn_scene(seed: int, interference: str = MEASURED) -> Scene:
    """Returns a seeded trace on the cluster of the ablation."""
    draw = np.random.default_rng(seed)
    submit_s = np.sort(draw.uniform(0, HOURS * 3600, JOBS))
    gpus = draw.choice(SIZES, JOBS, p=WEIGHTS).astype(np.int64)
    duration_s = np.clip(draw.lognormal(np.log(1800), 1.2, JOBS), 120, 8 * 3600)
    jobs = JobTable.build(
        [str(i) for i in range(JOBS)],
        submit_s,
        gpus,
        model=Labels.of([str(m) for m in draw.choice(MODELS, JOBS)]),
        shareable=np.ones(JOBS, bool),
        deadline_s=submit_s + draw.uniform(1.5, 2.5, JOBS) * duration_s,
    )
    trace = Trace.of(jobs, duration_s)
    cluster = Cluster.parse("8x2:A40")
    physics = placed_physics(
        jobs, cluster, shipped(), interference=parse_interference(interference)
    )
    return Scene(
        trace=trace,
        cluster=cluster,
        truth=physics,
        belief=physics,
        forecast=Known(trace.duration_s),
    )


def finishes(scene: Scene, text: str) -> Floats:
    """Returns when each job ends under a policy."""
    return np.array(play_scene(scene, parse_policy(text)).finish_s)


Measure = Callable[[Scene, Floats], float]
MEASURES: dict[str, tuple[dict[str, str], Measure]] = {
    "mean JCT, lucid": (
        upper("lucid", "lucid:score-limit=SCORES;unequal=true", "jct"),
        lambda scene, end_s: 1 / float((end_s - scene.trace.jobs.submit_s).mean()),
    ),
    "deadlines met, gandiva-deadline": (
        upper("gandiva-deadline", "gandiva-deadline:unequal=true", "deadline"),
        lambda scene, end_s: float((end_s <= scene.trace.jobs.deadline_s).sum()),
    ),
    "makespan, gavel": (
        upper("gavel", "gavel:unequal=true", "makespan"),
        lambda scene, end_s: 1 / float(end_s.max()),
    ),
}
"""By what is measured: the policies, and a number of a run that is better the higher it is."""


def main() -> None:
    """Prints how many times better each step is than the scheduler alone, mean and range."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=10)
    parser.add_argument("--of", default="", help="a word of what is measured: JCT, deadlines")
    parser.add_argument("--interference", default=MEASURED)
    parser.add_argument("--score-limit", default="3")
    given = parser.parse_args()
    scenes = [drawn_scene(seed, given.interference) for seed in range(given.traces)]
    chosen = {what: m for what, m in MEASURES.items() if given.of in what}
    for what, (policies, measure) in chosen.items():
        values = {
            step: [
                measure(scene, finishes(scene, text.replace("SCORES", given.score_limit)))
                for scene in scenes
            ]
            for step, text in policies.items()
        }
        for step in [step for step in STEPS if step in values]:
            gains = [a / b for a, b in zip(values[step], values["alone"], strict=True)]
            spread = f"{min(gains):.2f} to {max(gains):.2f}"
            print(f"{what}, {step}: {fmean(gains):.3f} ({spread})", flush=True)


if __name__ == "__main__":
    main()
