"""What kubectl applied, kubectl takes away."""

from pathlib import Path

import pytest

from hami_dra.migration.registration import GUARD_NAME, NAME
from tests.e2e.installation import HOOKS, Site
from tests.node.bed import Bed
from tests.node.installation import apply, await_nothing_left, write_overlay

pytestmark = pytest.mark.cluster


def test_deleting_the_overlay_leaves_nothing(bare_bed: Bed, tmp_path: Path) -> None:
    """In the order that INSTALL names, so that no pod is refused meanwhile."""
    kubectl, site = bare_bed.cluster.kubectl, Site(bare_bed.cluster, bare_bed.api)
    before = site.everything()
    overlay = str(write_overlay(tmp_path))
    try:
        apply(bare_bed, tmp_path)
        bare_bed.await_slice()
        kubectl("delete", "validatingadmissionpolicybinding", GUARD_NAME)
        kubectl("delete", HOOKS, NAME)
    finally:
        kubectl("delete", "-k", overlay, "--ignore-not-found")

    await_nothing_left(bare_bed, site, before)
