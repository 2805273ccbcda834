"""HAMi's variables, where no agent wrote files: the same names, and nothing unclear grants anything."""

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native.conftest import NATIVE, Built, Container

_ASK = """
    cuda = Cuda()
    total = cuda.info()[1] >> 20
    tell([total, cuda.alloc(60 * MIB)[0]])
"""


class _Parsed(ctypes.Structure):
    _fields_ = (("value", ctypes.c_uint64), ("error", ctypes.c_char_p))


@pytest.fixture(scope="session")
def config(built: Built) -> ctypes.CDLL:
    """The pure part of the configuration, as a library of its own."""
    source = '#include "../src/config.c"\n#include "../src/log.c"\n'
    library = built.compile(
        built.directory / "config.so", source, "-shared", "-fPIC", f"-I{NATIVE}/src"
    )
    loaded = ctypes.CDLL(str(library))
    loaded.vgpu_parse_bytes.restype = _Parsed
    loaded.vgpu_parse_percent.restype = _Parsed
    return loaded


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1024", 1024),
        ("512m", 512 << 20),
        ("512M", 512 << 20),
        ("16Gi", 16 << 30),
        ("16GiB", 16 << 30),
        ("15360MB", 15360 << 20),
        ("4g", 4 << 30),
        ("1t", 1 << 40),
        ("010", 10),
        ("100b", 100),
        ("18446744073709551614", 2**64 - 2),
        ("", None),
        ("m", None),
        ("-1", None),
        ("+1", None),
        (" 1", None),
        ("1 g", None),
        ("0x10", None),
        ("1.5g", None),
        ("1i", None),
        ("1gg", None),
        ("1gx", None),
        ("18446744073709551615", None),
        ("99999999999999999999", None),
        ("17179869184g", None),
    ],
)
def test_sizes(config: ctypes.CDLL, text: str, size: int | None) -> None:
    parsed = config.vgpu_parse_bytes(text.encode())

    assert (None if parsed.error else parsed.value) == size


@given(number=st.integers(0, 2**63), unit=st.sampled_from(["", "k", "m", "g", "t"]))
def test_a_size_is_never_wrapped(config: ctypes.CDLL, number: int, unit: str) -> None:
    parsed = config.vgpu_parse_bytes(f"{number}{unit}".encode())
    meant = number << (10 * " kmgt".index(unit or " "))

    assert parsed.error if meant >= 2**64 - 1 else parsed.value == meant


@given(st.binary(max_size=40).filter(lambda text: b"\0" not in text))
def test_any_text_is_a_size_or_an_error(config: ctypes.CDLL, text: bytes) -> None:
    parsed = config.vgpu_parse_bytes(text)

    assert parsed.error or text[:1].isdigit()
    assert config.vgpu_parse_percent(text).value <= 100


@pytest.mark.parametrize(
    ("visible", "ordinal", "number"),
    [
        (None, 3, 3),
        ("", 1, 1),
        ("1,0", 0, 1),
        ("1,0", 1, 0),
        (" 2 , 1", 1, 1),
        ("0", 1, -1),
        ("GPU-1", 0, -1),
        ("99", 0, -1),
        ("1x", 0, -1),
    ],
)
def test_visible_devices(
    config: ctypes.CDLL, visible: str | None, ordinal: int, number: int
) -> None:
    text = None if visible is None else visible.encode()

    assert config.vgpu_number_of_ordinal(text, ordinal) == number


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, [16384, 0]),
        ({"CUDA_DEVICE_MEMORY_LIMIT": "50m"}, [50, 2]),
        ({"CUDA_DEVICE_MEMORY_LIMIT_0": "50m"}, [50, 2]),
        ({"CUDA_DEVICE_MEMORY_LIMIT_1": "50m"}, [16384, 0]),
        ({"CUDA_DEVICE_MEMORY_LIMIT": "50m", "CUDA_DEVICE_MEMORY_LIMIT_0": "70m"}, [70, 0]),
        ({"CUDA_DEVICE_MEMORY_LIMIT": "50m", "CUDA_DEVICE_MEMORY_LIMIT_0": "0"}, [50, 2]),
        ({"CUDA_DEVICE_MEMORY_LIMIT": "0"}, [16384, 0]),
        ({"CUDA_DEVICE_MEMORY_LIMIT": "lots"}, [0, 2]),
        ({"CUDA_DEVICE_MEMORY_LIMIT_0": "1.5g", "CUDA_DEVICE_MEMORY_LIMIT": "9g"}, [0, 2]),
    ],
)
def test_the_variables_limit_as_with_hami(
    container: Container, variables: dict[str, str], told: list[int]
) -> None:
    assert container.run(_ASK, **variables) == told


def test_what_cannot_be_read_is_said_in_one_line(container: Container) -> None:
    container.run(_ASK, CUDA_DEVICE_MEMORY_LIMIT_0="1.5g")

    assert "found CUDA_DEVICE_MEMORY_LIMIT_0=1.5g, expected decimal digits" in container.said
    assert container.said.count("found CUDA_DEVICE_MEMORY_LIMIT") == 1


def test_the_processes_of_a_container_share_the_limit_of_its_environment(
    container: Container,
) -> None:
    container.variables["CUDA_DEVICE_MEMORY_LIMIT"] = "100m"
    holder = container.start("cuda = Cuda(); tell(cuda.alloc(60 * MIB)[0]); sys.stdin.readline()")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "0\n"

    assert container.run(_ASK) == [100, 2]


def test_a_cache_file_of_hami_core_is_left_alone(container: Container) -> None:
    cache = container.directory / "cache"
    foreign = (19920718).to_bytes(4, "little").ljust(2008952, b"\1")
    cache.write_bytes(foreign)

    assert container.run(_ASK, CUDA_DEVICE_MEMORY_LIMIT="50m") == [50, 2]
    assert cache.read_bytes() == foreign


def test_a_cache_that_cannot_be_made_leaves_the_limit(container: Container) -> None:
    told = container.run(
        _ASK, CUDA_DEVICE_MEMORY_LIMIT="50m", CUDA_DEVICE_MEMORY_SHARED_CACHE="/proc/none/cache"
    )

    assert told == [50, 2]
    assert "cannot open /proc/none/cache" in container.said


def test_control_files_are_stronger_than_variables(limited: Container) -> None:
    told = limited.run(_ASK, CUDA_DEVICE_MEMORY_LIMIT="50m", CUDA_DISABLE_CONTROL="true")

    assert told == [1000, 0]
