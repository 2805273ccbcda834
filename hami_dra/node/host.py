"""What the claim machine needs to know about its node, and where it puts files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hami_dra.node import cdi
from hami_dra.node.cdi import Mount, NodeEdits
from hami_dra.node.prepare import Node
from hami_dra.node.strictness import Strictness


class Host(Protocol):
    """What the machine asks about this node, anew each time because it may change."""

    def node(self) -> Node:
        """Return the cards that can be prepared now."""

    def edits(self) -> NodeEdits:
        """Return what containers need to use them."""

    def strictness(self) -> Strictness:
        """Return how strictly claims are held to their limits that wish for nothing."""

    def library(self) -> str:
        """Return the digest of the native library that new claims get; empty for none."""

    def library_mounts(self, digest: str) -> Sequence[Mount]:
        """Return the mounts that bring a library into a container."""


@dataclass(frozen=True, slots=True)
class Directories:
    """Where files lie; the runtime resolves the same paths, so they are the host's.

    Attributes:
        cdi: one of the runtime's CDI directories.
        claims: one directory for each claim.
    """

    cdi: Path
    claims: Path

    def make(self) -> None:
        """Have them.

        Raises:
            OSError: if the disk refuses.
        """
        for path in (self.cdi, self.claims):
            path.mkdir(parents=True, exist_ok=True, mode=0o755)
        # Containers write their books there, each through a mount of its own; nobody else needs in.
        self.claims.parent.chmod(0o700)

    def spec(self, uid: str) -> Path:
        """Return the CDI file of a claim."""
        return self.cdi / cdi.file_name(uid)

    def claim(self, uid: str) -> Path:
        """Return the directory with a claim's own files."""
        return self.claims / uid
