"""The claim machine: the only writer of the checkpoint and of the files of claims.

`absent -> preparing -> prepared -> absent`. Before a file of a claim exists its record is on disk,
and the record goes after the files, so a process that is killed anywhere leaves a state from which
both prepare and unprepare work (ruling 40).

Everything here blocks and may be called from several threads, of which one works at a time; claims
that come together share the writes of the checkpoint (`hami_dra.node.work`).
"""

import logging
import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from hami_dra.migration import Json
from hami_dra.node.allocation import PrepareError
from hami_dra.node.books import Books
from hami_dra.node.checkpoint import Checkpoint, Content, NewerFormatError, Source
from hami_dra.node.claim_files import ClaimFiles, sentence
from hami_dra.node.feed import Fed
from hami_dra.node.host import Host
from hami_dra.node.prepare import plan
from hami_dra.node.record import Record, State
from hami_dra.node.share import Share
from hami_dra.node.strictness import of_claim
from hami_dra.node.turns import Turns
from hami_dra.node.work import Done, Job, Take, Work, together, value

T = TypeVar("T")

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

    def records(self) -> Mapping[str, Record]:
        """Return what is remembered, by claim UID."""
        with self._mutex:
            return self._books.all()

    def fed(self) -> Sequence[Fed]:
        """Return the claims whose library is told what their processes do."""
        return [
            found
            for each in self.records().values()
            if each.library and each.state is State.PREPARED and (found := self._files.fed(each))
        ]

    def knows(self, uid: str) -> bool:
        """Tell whether this process remembers a claim; another agent of the node may do so too."""
        with self._mutex:
            return self._books.get(uid) is not None

    def standing(self, uid: str) -> tuple[Share, ...] | None:
        """Return what a prepared claim holds if all its files are right; changes nothing.

        This takes no turn and reads files in memory alone, so it may be called where nothing may
        wait. Whoever removes a claim removes first what is looked at last, the runtime's file.
        """
        with self._mutex:
            record = self._books.get(uid)
        if record is None or record.state is not State.PREPARED:
            return None
        return record.shares if self._files.stand(record) else None

    def together(self, take: Take) -> None:
        """Do jobs of this machine side by side, and those that come meanwhile.

        Raises:
            PrepareError: if a newer release has taken over the checkpoint.
        """
        with self._turns.turn():
            together(take, self._save)

    def repeat(self, uid: str) -> tuple[Share, ...] | None:
        """Do `repeating` alone."""
        return self._alone(self.repeating(uid))

    def prepare(self, claim: Json) -> tuple[Share, ...]:
        """Do `preparing` alone."""
        return self._alone(self.preparing(claim))

    def unprepare(self, uid: str) -> None:
        """Do `unpreparing` alone."""
        self._alone(self.unpreparing(uid))

    def repeating(self, uid: str) -> Work[tuple[Share, ...] | None]:
        """Return what a prepared claim holds, its files verified; None if it has to be prepared.

        Raises:
            PrepareError: if its files cannot be put right.
        """
        yield from ()  # nothing to write down
        _refuse_strange(uid)
        record = self._books.get(uid)
        if record is None or record.state is not State.PREPARED:
            return None
        self._files.have(record)
        return record.shares

    def preparing(self, claim: Json) -> Work[tuple[Share, ...]]:
        """Prepare a claim and return what it holds; empty if it holds nothing of ours.

        Raises:
            PrepareError: if it cannot be prepared, with nothing left behind.
        """
        _refuse_strange(claim["metadata"]["uid"])
        record = self._reserve(claim)
        if not record.shares:
            return ()
        if record.state is State.PREPARED:
            self._files.have(record)
            return record.shares
        is_held = False
        try:
            yield
            if is_held := self._holds(record):
                self._files.have(record, anew=True)
                self._remember(replace(record, state=State.PREPARED))
                yield
        except (OSError, PrepareError) as error:
            yield from self._undoing(record)
            raise sentence(error) from error
        if not is_held:
            # Whoever asked has given up: the kubelet unprepares only what it does not wait for.
            raise PrepareError("the claim was unprepared or allocated anew while it was prepared")
        return record.shares

    def unpreparing(self, uid: str) -> Work[None]:
        """Have nothing of a claim; one that is not known is no error.

        Raises:
            OSError: if the disk refuses; the kubelet tries again.
        """
        _refuse_strange(uid)
        self._files.remove(uid)
        with self._mutex:
            record = self._books.drop(uid)
            unreadable = self._unreadable.pop(uid, None)
        if record is None and unreadable is None:
            return
        try:
            yield
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

    def with_libraries(self, do: Callable[[Collection[str]], T]) -> T | None:
        """Do something about the libraries that claims have, while nobody prepares a claim.

        Returns:
            What it returned; None if it was not done, as what some claim has cannot be read.

        Raises:
            OSError: if the disk refuses.
            PrepareError: if a newer release has taken over the checkpoint.
        """
        with self._turns.turn():
            # Only now is it known what another agent of this node has prepared.
            if self._unreadable:
                return None
            return do({record.library for record in self.records().values()})

    def persist(self) -> None:
        """Write down what is remembered, as after it was pieced together.

        Raises:
            OSError: if the disk refuses.
        """
        with self._turns.turn():
            self._save()

    def forget(self) -> bool:
        """Remove the checkpoint if it remembers no claim; tell whether that is so.

        Raises:
            OSError: if the disk refuses.
        """
        with self._turns.turn(), self._mutex:
            if self._books.all() or self._unreadable:
                return False
            self._checkpoint.remove()
            return True

    def _reserve(self, claim: Json) -> Record:
        """Plan a claim against all others and remember it before anything of it exists."""
        metadata = claim["metadata"]
        uid: str = metadata["uid"]
        node = self._host.node()
        how = of_claim(claim, self._host.strictness())
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
                library=self._host.library() if how.has_library else "",
                strictness=how,
            )
            if shares:
                self._books.put(record)
                self._unreadable.pop(uid, None)
        return record

    def _holds(self, record: Record) -> bool:
        """Tell whether a claim still holds what was reserved for it."""
        with self._mutex:
            found = self._books.get(record.uid)
        return found is not None and found.shares == record.shares

    def _remember(self, record: Record) -> None:
        with self._mutex:
            self._books.put(record)

    def _undoing(self, record: Record) -> Work[None]:
        """Take back a claim that could not be prepared, as far as the disk lets us."""
        with self._mutex:
            self._books.drop(record.uid)
        try:
            self._files.remove(record.uid)
            yield
        except OSError as error:
            _log.warning("claim %s left files behind: %s", record.title, error)

    def _save(self) -> None:
        with self._mutex:
            content = replace(
                self._content, records=self._books.all(), unreadable=dict(self._unreadable)
            )
        self._seen = self._checkpoint.save(content)

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
                self._content = replace(self._content, unknown=found.content.unknown)
                self._books = Books(found.content.records.values())
                self._unreadable = dict(found.content.unreadable)
        self._seen = self._checkpoint.version()

    def _alone(self, work: Work[T]) -> T:
        ended: list[Done] = []
        jobs = [Job(work, ended.append)]

        def take() -> list[Job]:
            return [jobs.pop()] if jobs else []

        self.together(take)
        found: T = value(ended[0])
        return found


def _refuse_strange(uid: str) -> None:
    """Refuse what becomes the name of a file and is none: an empty one or `..` names others."""
    if not _UID.fullmatch(uid):
        raise PrepareError(f"found claim UID {uid!r:.80}, expected letters, digits and dashes")
