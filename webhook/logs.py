"""Logging is the product's own: see `hami_dra.logs`."""

from hami_dra.logs import LogFormat, configure

__all__ = ["LogFormat", "configure"]
