"""The budget of compute in a usage file, field by field."""

import ctypes
from typing import Final

MS: Final = 1_000_000
SECOND: Final = 1000 * MS


class Budget(ctypes.Structure):
    """vgpu_usage_device."""

    _fields_ = (
        ("lock", ctypes.c_ubyte * 48),
        ("total", ctypes.c_uint64),
        ("fed", ctypes.c_uint64),
        ("credit_ns", ctypes.c_int64),
        ("refilled_at_ns", ctypes.c_uint64),
        ("pending", ctypes.c_uint64),
        ("cost_ns", ctypes.c_uint64),
        ("done", ctypes.c_uint64),
        ("busy_seen_ns", ctypes.c_uint64),
        ("trued_at_ns", ctypes.c_uint64),
        ("cost_weight", ctypes.c_uint64),
    )
