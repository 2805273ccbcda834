"""The table of what was allocated, against a dict."""

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native.conftest import NATIVE, Built


class _Record(ctypes.Structure):
    """vgpu_record."""

    _fields_ = (
        ("key", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("owner", ctypes.c_uint64),
        ("device", ctypes.c_uint16),
        ("kind", ctypes.c_uint16),
        ("count", ctypes.c_uint32),
    )


_MATCHES = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.POINTER(_Record), ctypes.c_void_p)
_EACH = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Record))


@pytest.fixture(scope="session")
def code(built: Built) -> ctypes.CDLL:
    """The table, as a library of its own."""
    source = '#include "../src/table.c"\nstruct vgpu_table table;\n'
    library = built.compile(
        built.directory / "table.so", source, "-shared", "-fPIC", f"-I{NATIVE}/src", "-pthread"
    )
    loaded = ctypes.CDLL(str(library))
    loaded.vgpu_table_put.argtypes = [ctypes.c_void_p, _Record]
    loaded.vgpu_table_take.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p]
    loaded.vgpu_table_put.restype = loaded.vgpu_table_take.restype = ctypes.c_bool
    loaded.vgpu_table_take_all.argtypes = [ctypes.c_void_p, _MATCHES, ctypes.c_void_p, _EACH]
    return loaded


def _table(code: ctypes.CDLL) -> Any:
    table = ctypes.byref(ctypes.c_char.in_dll(code, "table"))
    code.vgpu_table_forget(table)
    return table


def _take_all(
    code: ctypes.CDLL, table: Any, is_wanted: Callable[[int], bool]
) -> tuple[list[int], int]:
    """Return the keys that were taken, and how many records were looked at."""
    looks, taken = [0], []

    def matches(record: Any, _: Any) -> bool:
        looks[0] += 1
        return is_wanted(record[0].owner)

    kept = (_MATCHES(matches), _EACH(lambda record: taken.append(record[0].key)))
    code.vgpu_table_take_all(table, kept[0], None, kept[1])
    return taken, looks[0]


@given(
    st.dictionaries(st.integers(1, 2**64 - 1), st.integers(0, 3), max_size=400),
    st.integers(0, 3),
)
def test_all_that_an_owner_has_is_taken_and_nothing_else(
    code: ctypes.CDLL, owners: dict[int, int], ended: int
) -> None:
    table = _table(code)
    for key, owner in owners.items():
        assert code.vgpu_table_put(table, _Record(key=key, owner=owner))

    taken, _ = _take_all(code, table, lambda owner: owner == ended)

    assert sorted(taken) == sorted(key for key, owner in owners.items() if owner == ended)
    found = _Record()
    left = [key for key in owners if code.vgpu_table_take(table, key, ctypes.byref(found))]
    assert left == [key for key, owner in owners.items() if owner != ended]


@pytest.mark.parametrize("ended", [0, 1])
def test_the_end_of_an_owner_looks_at_each_record_about_once(code: ctypes.CDLL, ended: int) -> None:
    """A context may end with a hundred thousand allocations, and their number squared is minutes."""
    table = _table(code)
    count = 20_000
    for i in range(1, count + 1):
        code.vgpu_table_put(table, _Record(key=i << 21, owner=i % 2))

    taken, looks = _take_all(code, table, lambda owner: owner == ended)

    assert len(taken) == count // 2
    assert count <= looks <= count * 2
