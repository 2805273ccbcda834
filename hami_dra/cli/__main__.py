"""`python -m hami_dra.cli`: the same as `hami-dra`."""

from hami_dra.cli.app import main

main()
