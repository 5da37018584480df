"""All log formats, in the order in which they are tried on a file whose format is not told."""

from __future__ import annotations

from dovetail.workload.readers.afs import AFS, AFS_SIM
from dovetail.workload.readers.format import Format
from dovetail.workload.readers.itp import ELASTICFLOW, ITP
from dovetail.workload.readers.muri import MURI
from dovetail.workload.readers.philly_csv import PHILLY_CSV

FORMATS: tuple[Format, ...] = (MURI, AFS, AFS_SIM, PHILLY_CSV, ELASTICFLOW, ITP)
