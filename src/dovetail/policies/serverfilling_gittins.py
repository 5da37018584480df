"""ServerFilling-Gittins: of the jobs of best Gittins index that fill the cluster, the widest run.

As ServerFilling-SRPT, for lengths that are not known: jobs are ordered by the Gittins index of the
service they have received, in GPU-seconds, under the distribution of total service that ended jobs
have shown. Until `samples_min` have ended, the job with the least service goes first.

Source: Grosof, Scully, Harchol-Balter, Scheller-Wolf: Optimal Scheduling in the Multiserver-job
Model under Heavy Traffic (SIGMETRICS 2023), section 5.
Knows: attained service, and the service of ended jobs. Stops running jobs: yes.
"""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.core.passes import Because, Keys
from dovetail.core.plan import Draft
from dovetail.core.policy import register
from dovetail.core.view import View
from dovetail.mechanisms.ranking.learned_index import IndexPolicy
from dovetail.mechanisms.ranking.server_filling import fill_servers


@register("serverfilling-gittins")
@dataclass(frozen=True, slots=True)
class ServerFillingGittins(IndexPolicy):
    """The widest of the jobs of best index that fill the cluster, preemptive."""

    def serve(self, view: View, keys: Keys) -> tuple[Draft | None, Because]:
        """Fills the cluster from the jobs of the largest index, the widest first."""
        return fill_servers(view, keys)
