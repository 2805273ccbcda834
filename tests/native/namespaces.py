"""Namespaces of their own for programs under test, with and without root."""

import shutil


def unshare(*options: str) -> list[str]:
    """Return the command that gives a program namespaces in which it is root."""
    found = shutil.which("unshare")
    assert found, "util-linux is part of every distribution"
    return [found, "--user", "--map-root-user", *options]
