"""The folders of jobs, made with their scripts before any order to start a worker is sent.

So are the folders of new lineages; old ones go once nobody can write to them. A full disk must end
neither the controller nor a job whose script cannot be written now. Such a folder is owed: until it
is there the journal accepts no entry, and so no order is sent.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

from dovetail.live.controller.launches import launcher_in
from dovetail.live.edges.protocols import Journal, JournalEntry, StoreError
from dovetail.live.jobs.lineage import (
    begin_lineage,
    draft_lineage,
    drop_lineages,
    lineage_folder,
)
from dovetail.live.jobs.record import JobRecord
from dovetail.live.store.folder import Folder
from dovetail.live.system.private_file import has_no_inodes
from dovetail.wire.agent import StartWorker
from dovetail.wire.spec import JobSpec

LOG = logging.getLogger(__name__)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class JobFolders:
    """Makes launches, and is the journal of the controller: a write first makes owed folders."""

    def __init__(
        self,
        folder: Folder,
        journal: Journal,
        *,
        ships: bool = False,
        uid_of: Callable[[str], int] = lambda user: -1,
    ) -> None:
        self._folder, self._journal = folder, journal
        owned = folder.owned_by_users
        self._launch = launcher_in(folder.jobs, ships=ships, owned_by_users=owned, uid_of=uid_of)
        self._owed: dict[int, JobSpec] = {}
        self._stranded: dict[int, frozenset[int]] = {}

    def launch(self, number: int, spec: JobSpec) -> StartWorker:
        """Returns the launch of a job; its folder and script are there before it is used."""
        if self._folder.owned_by_users:
            # The agent makes it for its owner, and the script in it.
            return self._launch(number, spec)
        try:
            self._make(number, spec)
        except OSError as error:
            # Room may come back. Any other error the agent reports, which cannot start the job.
            if error.errno in NO_ROOM:
                self._owed[number] = spec
            LOG.error("the folder of job %d cannot be written: %s", number, self._why(error))
        return self._launch(number, spec)

    def write(self, entry: JournalEntry) -> None:
        """Returns when the entry is durable. Raises StoreError if it cannot be written."""
        for number, spec in list(self._owed.items()):
            try:
                self._make(number, spec)
            except OSError as error:
                if error.errno in NO_ROOM:
                    why = f"the folder of job {number} cannot be made: {self._why(error)}"
                    raise StoreError(why) from None
                LOG.error("the folder of job %d cannot be written: %s", number, error.strerror)
            del self._owed[number]
        # Lineages in a folder of its submitter are begun by the agent, too.
        ours = not self._folder.owned_by_users
        records = [record for record in entry.records if record.lineage and ours]
        begun = [record for record in records if self._draft(record)]
        self._journal.write(entry)
        for record in begun:
            self._begin(record)
        for record in records:
            self._drop_old(record)

    def _draft(self, record: JobRecord) -> bool:
        """Prepares the lineage of a record; False if it is there. Raises StoreError."""
        own = self._folder.job(record.job)
        if lineage_folder(own, record.lineage).is_dir():
            return False
        try:
            draft_lineage(own, record.lineage)
        except OSError as error:
            # Without it the job would begin from nothing, so no order may be sent.
            why = f"lineage {record.lineage} of job {record.job} cannot be made: {self._why(error)}"
            raise StoreError(why) from None
        return True

    def _begin(self, record: JobRecord) -> None:
        """Gives a lineage its name, now that it is on record.

        If that fails no worker starts, for its agent finds no such folder, and the next entry with
        the record tries it again.
        """
        try:
            begin_lineage(self._folder.job(record.job), record.lineage)
        except OSError as error:
            lineage = f"lineage {record.lineage} of job {record.job}"
            LOG.error("%s cannot be begun: %s", lineage, self._why(error))

    def _drop_old(self, record: JobRecord) -> None:
        """Removes the lineages before that of a record to which no worker can write any more."""
        kept = frozenset(lineage for _, lineage in record.stranded)
        if self._stranded.get(record.job) != kept:
            self._stranded[record.job] = kept
            drop_lineages(self._folder.job(record.job), record.lineage, kept)

    def _why(self, error: OSError) -> str:
        """Returns the system's error, or that inodes have run out where bytes have not."""
        home = self._folder.home
        if error.errno == errno.ENOSPC and has_no_inodes(home):
            return f"no inodes are left on the file system of {home} (df -i)"
        return error.strerror or "unknown error"

    def _make(self, number: int, spec: JobSpec) -> None:
        self._folder.make_job(number)
        if spec.script:
            self._folder.keep_script(number, spec.script)
