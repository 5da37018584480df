"""All log formats, in the order in which they are tried on a file whose format is not told."""

from __future__ import annotations

from dovetail.workload.readers.acme import ACME
from dovetail.workload.readers.afs import AFS, AFS_SIM
from dovetail.workload.readers.dirlab import DIRLAB
from dovetail.workload.readers.format import Format
from dovetail.workload.readers.gavel import GAVEL
from dovetail.workload.readers.helios import HELIOS
from dovetail.workload.readers.itp import ELASTICFLOW, ITP
from dovetail.workload.readers.muri import MURI
from dovetail.workload.readers.openb import OPENB
from dovetail.workload.readers.pai import GAIA, PAI, PAI_SIM
from dovetail.workload.readers.philly_csv import PHILLY_CSV
from dovetail.workload.readers.philly_json import PHILLY_JSON
from dovetail.workload.readers.pollux import POLLUX
from dovetail.workload.readers.slurm import SLURM
from dovetail.workload.readers.swf import SWF

FORMATS: tuple[Format, ...] = (
    *(PHILLY_JSON, PHILLY_CSV, AFS, AFS_SIM, MURI, POLLUX, ELASTICFLOW, ITP, HELIOS, ACME),
    *(PAI, PAI_SIM, GAIA, OPENB, DIRLAB, GAVEL, SLURM, SWF),
)
