"""The command `uninstall`, which is the other half of `install`."""

from hami_dra.cli.install import UNINSTALL_EPILOG as EPILOG
from hami_dra.cli.install import uninstall_command

__all__ = ["EPILOG", "uninstall_command"]
