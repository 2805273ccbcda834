"""The claim machine: the only writer of the checkpoint and of the files of claims.

`absent -> preparing -> prepared -> absent`. Before a file of a claim exists its record is on disk,
and the record goes after the files, so a process that is killed anywhere leaves a state from which
both prepare and unprepare work (ruling 40).

Everything here blocks and may be called from several threads; one claim is worked on by one thread
at a time, and threads that come together share one write of the checkpoint.
"""

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from hami_dra.migration import Json
from hami_dra.node.allocation import PrepareError
from hami_dra.node.books import Books
from hami_dra.node.checkpoint import Checkpoint, Content, NewerFormatError, Source
from hami_dra.node.claim_files import ClaimFiles, sentence
from hami_dra.node.host import Host
from hami_dra.node.prepare import plan
from hami_dra.node.record import Record, State
from hami_dra.node.share import Share
from hami_dra.node.turns import Turns

_UID: Final = re.compile(r"[0-9A-Za-z-]{1,64}")

_log = logging.getLogger(__name__)


class Claims:
    """All claims of this node.

    Args:
        content: what the checkpoint remembered.
        checkpoint: where it is remembered.
        files: the files of claims.
        host: what this node offers.
        lock: the file by which agents of one node take turns.
    """

    def __init__(
        self,
        content: Content,
        checkpoint: Checkpoint,
        files: ClaimFiles,
        host: Host,
        *,
        lock: Path,
    ) -> None:
        self._content = content
        self._books = Books(content.records.values())
        self._unreadable = dict(content.unreadable)
        self._checkpoint = checkpoint
        self._files = files
        self._host = host
        self._mutex = threading.Lock()
        self._seen = checkpoint.version()
        self._turns = Turns(lock, self._catch_up)
        self._committer = _Committer(self._save)
        self._locks: dict[str, _ClaimLock] = {}

    def records(self) -> Mapping[str, Record]:
        """Return what is remembered, by claim UID."""
        with self._mutex:
            return self._books.all()

    def repeat(self, uid: str) -> tuple[Share, ...] | None:
        """Return what a prepared claim holds, its files verified; None if it has to be prepared.

        Raises:
            PrepareError: if its files cannot be put right.
        """
        with self._alone(uid):
            with self._mutex:
                record = self._books.get(uid)
            if record is None or record.state is not State.PREPARED:
                return None
            self._files.have(record)
            return record.shares

    def prepare(self, claim: Json) -> tuple[Share, ...]:
        """Prepare a claim and return what it holds; empty if it holds nothing of ours.

        Raises:
            PrepareError: if it cannot be prepared, with nothing left behind.
        """
        uid: str = claim["metadata"]["uid"]
        with self._alone(uid):
            record = self._reserve(claim)
            if not record.shares:
                return ()
            if record.state is State.PREPARED:
                self._files.have(record)
                return record.shares
            try:
                self._committer.commit()
                self._files.have(record, anew=True)
                self._remember(replace(record, state=State.PREPARED))
                self._committer.commit()
            except (OSError, PrepareError) as error:
                self._undo(record)
                raise sentence(error) from error
            return record.shares

    def unprepare(self, uid: str) -> None:
        """Have nothing of a claim; one that is not known is no error.

        Raises:
            OSError: if the disk refuses; the kubelet tries again.
        """
        with self._alone(uid):
            self._files.remove(uid)
            with self._mutex:
                record = self._books.drop(uid)
                unreadable = self._unreadable.pop(uid, None)
            if record is None and unreadable is None:
                return
            try:
                self._committer.commit()
            except OSError:
                # Still remembered on disk, so that the next try must not find nothing to do.
                if record is not None:
                    self._remember(record)
                raise

    def restore(self) -> Mapping[str, PrepareError]:
        """Have the files of every prepared claim; return the claims for which that failed."""
        failed: dict[str, PrepareError] = {}
        for uid in self.records():
            try:
                self.repeat(uid)
            except PrepareError as error:
                failed[uid] = error
        return failed

    def remove_orphans(self) -> tuple[str, ...]:
        """Remove files of claims that are not remembered; return their names."""
        with self._turns.turn():
            return self._files.remove_orphans(self.records().keys() | self._unreadable.keys())

    def persist(self) -> None:
        """Write down what is remembered, as after it was pieced together.

        Raises:
            OSError: if the disk refuses.
        """
        with self._turns.turn():
            self._committer.commit()

    def alive(self) -> None:
        """Return unless another thread or agent keeps the locks that all work needs."""
        with self._turns.turn(), self._mutex:
            pass

    def _reserve(self, claim: Json) -> Record:
        """Plan a claim against all others and remember it before anything of it exists."""
        metadata = claim["metadata"]
        uid: str = metadata["uid"]
        node, library = self._host.node(), self._host.library()
        with self._mutex:
            shares = plan(claim, node, lambda card: self._books.held(card, besides=uid))
            before = self._books.get(uid)
            if before is not None and before.state is State.PREPARED and before.shares == shares:
                return before
            record = Record(
                uid=uid,
                namespace=str(metadata.get("namespace")),
                name=str(metadata.get("name")),
                state=State.PREPARING,
                shares=shares,
                library=library,
            )
            if shares:
                self._books.put(record)
                self._unreadable.pop(uid, None)
        return record

    def _remember(self, record: Record) -> None:
        with self._mutex:
            self._books.put(record)

    def _undo(self, record: Record) -> None:
        """Take back a claim that could not be prepared, as far as the disk lets us."""
        with self._mutex:
            self._books.drop(record.uid)
        try:
            self._files.remove(record.uid)
            self._committer.commit()
        except OSError as error:
            _log.warning("claim %s left files behind: %s", record.title, error)

    def _save(self) -> None:
        with self._mutex:
            content = replace(
                self._content, records=self._books.all(), unreadable=dict(self._unreadable)
            )
        self._checkpoint.save(content)
        self._seen = self._checkpoint.version()

    def _catch_up(self) -> None:
        """Take in what another agent of this node has written since."""
        version = self._checkpoint.version()
        if version in (None, self._seen):
            return
        try:
            found = self._checkpoint.load(self._content.boot_id)
        except NewerFormatError as error:
            raise PrepareError(str(error)) from error
        # A file that was removed or damaged under us knows less than we do.
        if found.source is Source.CURRENT:
            with self._mutex:
                self._books = Books(found.content.records.values())
                self._unreadable = dict(found.content.unreadable)
        self._seen = self._checkpoint.version()

    @contextmanager
    def _alone(self, uid: str) -> Iterator[None]:
        """Work on one claim in one thread; the lock is forgotten with its last user."""
        if not _UID.fullmatch(uid):
            # It becomes a file's name, and an empty one or `..` would name other files.
            raise PrepareError(f"found claim UID {uid!r:.80}, expected letters, digits and dashes")
        with self._mutex:
            lock = self._locks.setdefault(uid, _ClaimLock())
            lock.users += 1
        try:
            with self._turns.turn(), lock.lock:
                yield
        finally:
            with self._mutex:
                lock.users -= 1
                if not lock.users:
                    del self._locks[uid]


class _ClaimLock:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0


class _Committer:
    """Lets threads that come together share one write: what all of them changed is in it."""

    def __init__(self, save: "_Save") -> None:
        self._save = save
        self._writing = threading.Lock()
        self._counters = threading.Lock()
        self._asked = 0
        self._written = 0

    def commit(self) -> None:
        """Return when everything that was changed before this call is on disk."""
        with self._counters:
            self._asked += 1
            ours = self._asked
        with self._writing:
            if self._written >= ours:
                return
            with self._counters:
                covered = self._asked
            self._save()
            self._written = covered


class _Save(Protocol):
    def __call__(self) -> None: ...
