"""What a starting agent knows: the checkpoint, or what can be pieced together without it."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hami_dra.node import turns
from hami_dra.node.checkpoint import Checkpoint, Content, Source
from hami_dra.node.claim_files import ClaimFiles
from hami_dra.node.claims import Claims
from hami_dra.node.files import Files, read
from hami_dra.node.host import Directories, Host
from hami_dra.node.record import FILE as RECORD
from hami_dra.node.record import Record, RecordError, State, from_json

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""Where the kernel says which boot this is."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What is known at the start.

    Attributes:
        content: the claims.
        troubles: what was wrong with the checkpoint, a sentence each.
        rebuilt: titles of claims that the checkpoint had lost and their own files still knew.
        is_new_boot: whether the node was started since; then no file of a claim is left.
    """

    content: Content
    troubles: tuple[str, ...] = ()
    rebuilt: tuple[str, ...] = ()
    is_new_boot: bool = False

    @property
    def is_news(self) -> bool:
        """Tell whether this is other than what the checkpoint says."""
        return bool(self.troubles or self.rebuilt or self.is_new_boot)


def begin(
    home: Path, directories: Directories, host: Host, boot_id: str, *, files: Files
) -> tuple[Claims, Recovery]:
    """Make the claim machine of what is remembered, while no other agent of this node works.

    One that prepared a claim between what is read and what is believed to have been read would
    have it taken for nobody's.

    Args:
        home: the directory of the checkpoint and of the lock by which agents take turns.
        directories: where the files of claims lie.
        host: what this node offers.
        boot_id: of the running kernel.
        files: changes the disk.

    Raises:
        NewerFormatError: if a newer release wrote the checkpoint.
        OSError: if the files cannot be read.
    """
    checkpoint, lock = Checkpoint(home, files), home / "claims.lock"
    with turns.held(lock):
        recovery = recover(checkpoint, directories, boot_id)
        of_claims = ClaimFiles(files, directories, host)
        return Claims(recovery.content, checkpoint, of_claims, host, lock=lock), recovery


def recover(checkpoint: Checkpoint, directories: Directories, boot_id: str) -> Recovery:
    """Find out what is prepared on this node.

    Args:
        checkpoint: what was remembered.
        directories: where the files of claims lie.
        boot_id: of the running kernel.

    Raises:
        NewerFormatError: if a newer release wrote the checkpoint.
        OSError: if the files cannot be read.
    """
    loaded = checkpoint.load(boot_id)
    content = loaded.content
    is_new_boot = content.boot_id != boot_id
    if is_new_boot:
        # Who holds what is still true until the kubelet says otherwise; the files are gone.
        kept = {
            uid: replace(record, state=State.PREPARING) for uid, record in content.records.items()
        }
        content = replace(content, boot_id=boot_id, records=kept)
    # An orderly checkpoint is the truth; behind a damaged one, the files may know more.
    found = {} if loaded.source is Source.CURRENT else _from_files(directories, content)
    return Recovery(
        content=replace(content, records={**content.records, **found}),
        troubles=loaded.troubles,
        rebuilt=tuple(record.title for record in found.values()),
        is_new_boot=is_new_boot,
    )


def _from_files(directories: Directories, content: Content) -> dict[str, Record]:
    """Read the records beside the files of claims that the checkpoint does not know as prepared."""
    found: dict[str, Record] = {}
    try:
        folders = sorted(directories.claims.iterdir())
    except FileNotFoundError:
        return {}
    for folder in folders:
        uid = folder.name
        known = content.records.get(uid)
        if uid in content.unreadable or (known is not None and known.state is State.PREPARED):
            continue
        if (record := _record(folder, uid)) is not None and directories.spec(uid).exists():
            found[uid] = replace(record, state=State.PREPARED)
    return found


def _record(folder: Path, uid: str) -> Record | None:
    try:
        data = read(folder / RECORD)
        return from_json(uid, json.loads(data)) if data else None
    except (OSError, ValueError, RecordError):
        return None
