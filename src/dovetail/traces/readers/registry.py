"""All log formats, in the order of detection."""

from __future__ import annotations

from dovetail.traces.readers.afs import AFS, AFS_SIM
from dovetail.traces.readers.dirlab import DIRLAB
from dovetail.traces.readers.format import Format
from dovetail.traces.readers.gavel import GAVEL
from dovetail.traces.readers.helios import ACME, HELIOS
from dovetail.traces.readers.hpc_parquet import NLR, PM100
from dovetail.traces.readers.itp import ELASTICFLOW, ITP
from dovetail.traces.readers.muri import MURI
from dovetail.traces.readers.openb import OPENB
from dovetail.traces.readers.pai import GAIA, PAI, PAI_SIM
from dovetail.traces.readers.philly import PHILLY_CSV, PHILLY_JSON
from dovetail.traces.readers.pollux import POLLUX
from dovetail.traces.readers.slurm import SLURM
from dovetail.traces.readers.spot_gpu import ASI, SPOT_GPU
from dovetail.traces.readers.supercloud import SUPERCLOUD
from dovetail.traces.readers.swf import SWF

FORMATS: tuple[Format, ...] = (
    *(PHILLY_JSON, PHILLY_CSV, AFS, AFS_SIM, MURI, POLLUX, ELASTICFLOW, ITP, HELIOS, ACME),
    *(PAI, PAI_SIM, GAIA, OPENB, DIRLAB, GAVEL, SLURM, SWF),
    *(SPOT_GPU, ASI, SUPERCLOUD, PM100, NLR),
)
