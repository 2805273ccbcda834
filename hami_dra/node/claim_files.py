"""The files of claims: the CDI file for the runtime, and what containers are given of ours."""

import logging
import operator
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from hami_dra.node import cdi, limit_files
from hami_dra.node.allocation import PrepareError
from hami_dra.node.cdi import Mount, NodeEdits
from hami_dra.node.feed import Fed
from hami_dra.node.files import Files, is_temporary, read, without_temporary
from hami_dra.node.host import Directories, Host
from hami_dra.node.limits import CONTROL_BYTES, USAGE_BYTES, ClaimFlag, Control, DeviceLimit
from hami_dra.node.prepare import Node
from hami_dra.node.record import FILE as RECORD
from hami_dra.node.record import Record, State
from hami_dra.node.share import CardLimit, Share, card_limits

_MIB: Final = 2**20
_ALL_CORES: Final = 100
_WHOLE: Final = (CONTROL_BYTES, USAGE_BYTES)

_log = logging.getLogger(__name__)


class ClaimFiles:
    """Makes, mends and removes the files of claims.

    Args:
        files: changes the disk.
        directories: where.
        host: what this node offers.
    """

    def __init__(self, files: Files, directories: Directories, host: Host) -> None:
        self._files = files
        self._directories = directories
        self._host = host
        self._specs: dict[str, _Spec] = {}

    def have(self, record: Record, *, anew: bool = False) -> None:
        """Have a claim's files as they must be; what is right already is left alone.

        Args:
            record: of the claim.
            anew: whether files that are there may be another allocation's.

        Raises:
            PrepareError: if that is not possible.
        """
        try:
            try:
                self._have(record, anew=anew)
            except FileNotFoundError:
                # Somebody has emptied the host's directories.
                self._directories.make()
                self._have(record, anew=anew)
        except (OSError, ValueError) as error:
            raise sentence(error) from error

    def _have(self, record: Record, *, anew: bool) -> None:
        path, spec = self._directories.spec(record.uid), self._spec(record)
        if anew or self._sizes(record.uid) != _WHOLE:
            self._make(record, spec.limits)
        if anew or read(path) != spec.text:
            self._files.write(path, spec.text)

    def stand(self, record: Record) -> bool:
        """Tell whether a claim's files are as they must be; what cannot be read is not."""
        try:
            text = self._spec(record).text
            is_whole = self._sizes(record.uid) == _WHOLE
            return is_whole and read(self._directories.spec(record.uid)) == text
        except (OSError, PrepareError):
            return False

    def fed(self, record: Record) -> Fed | None:
        """Return what of a claim's files is fed; None while nobody has used them.

        Neither is there for cards that are not on this node now.
        """
        directory, cards = self._directories.claim(record.uid), self._host.node().cards
        try:
            if limit_files.is_untouched(directory / "usage"):
                return None
        except OSError:
            return None  # it ends just now
        if any(share.uuid not in cards for share in record.shares):
            return None
        return Fed(directory, _control(record, card_limits(record.shares, cards)))

    def remove(self, uid: str) -> None:
        """Have no file of a claim: first what the runtime reads, then what that points to.

        Raises:
            OSError: if the disk refuses.
        """
        self._files.remove(self._directories.spec(uid))
        self._files.remove_tree(self._directories.claim(uid))
        self._specs.pop(uid, None)

    def remove_orphans(self, known: Collection[str]) -> tuple[str, ...]:
        """Remove the files of all claims but these, and of writes that never ended.

        What the disk does not let go stays: it must not keep an agent from its work.

        Raises:
            OSError: if the directories cannot be read.
        """
        found = [
            (path, self._files.remove)
            for path in _entries(self._directories.cdi)
            if self._is_orphan(path.name, known)
        ]
        found += [
            (path, self._files.remove_tree)
            for path in _entries(self._directories.claims)
            if path.name not in known
        ]
        return tuple(path.name for path, remove in found if _is_gone(path, remove))

    @staticmethod
    def _is_orphan(name: str, known: Collection[str]) -> bool:
        uid = cdi.claim_uid(without_temporary(name))
        return uid is not None and (is_temporary(name) or uid not in known)

    def _spec(self, record: Record) -> "_Spec":
        """Return what the CDI file must say; rendered anew only when something changed."""
        # The library is looked for each time: without it a container would run without limits.
        library = tuple(self._host.library_mounts(record.library))
        made_of = (record.shares, self._host.node(), self._host.edits(), library)
        found = self._specs.get(record.uid)
        if found is None or not found.is_of(made_of):
            found = self._specs[record.uid] = self._rendered(record.uid, made_of)
        return found

    def _rendered(self, uid: str, made_of: "_Parts") -> "_Spec":
        shares, node, edits, library = made_of
        for share in shares:
            if share.uuid not in node.cards:
                raise PrepareError(
                    f"card {share.device} is not on this node any more; delete the pod so that it"
                    " is allocated anew"
                )
        limits = card_limits(shares, node.cards)
        mounts = (*cdi.claim_mounts(uid, str(self._directories.claim(uid))), *library)
        document = cdi.spec(uid, shares, limits, edits=edits, mounts=mounts)
        return _Spec(made_of, limits, cdi.render(document))

    def _sizes(self, uid: str) -> tuple[int | None, int | None]:
        """Return the sizes of `control` and `usage`; containers cannot write the first."""
        directory = self._directories.claim(uid)
        return _size(f"{directory}/control"), _size(f"{directory}/usage")

    def _make(self, record: Record, limits: Sequence[CardLimit]) -> None:
        directory = self._directories.claim(record.uid)
        is_new = self._files.make_directory(directory)
        if not is_new and _size(f"{directory}/usage") not in (None, USAGE_BYTES):
            self._files.remove(directory / "usage")
        # As it will be once all files are there, which is when anybody looks at it.
        text = replace(record, state=State.PREPARED).text.encode()
        write = self._files.create if is_new else self._files.write
        write(directory / RECORD, text, mode=0o600)
        self._files.step("create control and usage")
        limit_files.create(directory, _control(record, limits))


_Parts: TypeAlias = tuple[tuple[Share, ...], Node, NodeEdits, tuple[Mount, ...]]


@dataclass(frozen=True, slots=True)
class _Spec:
    """A CDI file's content, and what it was made of."""

    made_of: _Parts
    limits: tuple[CardLimit, ...]
    text: bytes

    def is_of(self, parts: _Parts) -> bool:
        """Tell whether these are the parts it was made of."""
        *ours, our_library = self.made_of
        *others, library = parts
        return our_library == library and all(map(operator.is_, ours, others))


def _control(record: Record, limits: Sequence[CardLimit]) -> Control:
    how = record.strictness
    return Control(
        devices=tuple(_device_limit(each) for each in limits),
        flags=ClaimFlag.ALLOW_DISABLE if how.may_disable else ClaimFlag.NONE,
        core_policy=how.core_policy,
        priority=how.priority,
    )


def sentence(error: Exception) -> PrepareError:
    """Say for the pod's events what the disk or the driver refused."""
    if isinstance(error, PrepareError):
        return error
    return PrepareError(f"the files of the claim could not be written: {error}")


def _device_limit(limit: CardLimit) -> DeviceLimit:
    return DeviceLimit(
        uuid=limit.uuid,
        memory_bytes=limit.memory_mib * _MIB,
        core_percent=min(limit.cores, _ALL_CORES),
    )


def _is_gone(path: Path, remove: Callable[[Path], None]) -> bool:
    try:
        remove(path)
    except OSError as error:
        _log.warning("file of an unknown claim not removed: %s", error)
        return False
    return True


def _size(path: str) -> int | None:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return None


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except FileNotFoundError:
        return []
