"""The contract with the agent: Python and C mean the same bytes."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hami_dra.node import limit_files, limits
from hami_dra.node.limits import Control, DeviceLimit, DriverUsage
from tests.native.conftest import NATIVE, UUIDS, Built, Container

_HEADER = (NATIVE / "include" / "vgpu_abi.h").read_text()


def _fields(structure: str) -> list[str]:
    body = re.search(rf"struct {structure} \{{(.*?)\n\}};", _HEADER, re.DOTALL)
    assert body
    return re.findall(r"^\s+(?:\w+ )+(\w+)(?:\[\w+\])?;", body[1], re.MULTILINE)


@pytest.mark.foreign
def test_every_offset_of_the_header_is_the_readers(built: Built, tmp_path: Path) -> None:
    """A program writes each field of both files with a number of its own; Python reads them all."""
    source = """
    #include "vgpu_abi.h"
    #include <stdio.h>
    #include <string.h>
    static struct vgpu_control control;
    static struct vgpu_usage usage;
    int main(int argc, char **argv) {
        control = (struct vgpu_control) { VGPU_CONTROL_MAGIC, VGPU_ABI_VERSION, 2, 4, 1, VGPU_CORES_FORCE, 7, 0,
            VGPU_CONTROL_BYTES, 6, 11 };
        for (int i = 0; i < 2; i++) {
            struct vgpu_control_device *d = &control.devices[i];
            snprintf(d->uuid, sizeof d->uuid, "GPU-%d", i);
            d->memory_bytes = i ? VGPU_NO_LIMIT : 100;
            d->context_bytes = 200 + i; d->core_percent = 30 + i; d->flags = VGPU_BLOCKED; d->busy_ns = 400 + i;
        }
        struct vgpu_control_process *p = &control.processes[VGPU_SLOTS - 1];
        *p = (struct vgpu_control_process) { 5, VGPU_PROCESS_GONE, 50, { 0 }, { 500, 501 } };
        usage = (struct vgpu_usage) { VGPU_USAGE_MAGIC, VGPU_ABI_VERSION, VGPU_USAGE_READY, VGPU_USAGE_BYTES, VGPU_SLOTS };
        struct vgpu_slot *s = &usage.slots[VGPU_SLOTS - 1];
        *s = (struct vgpu_slot) { 2, VGPU_SLOT_LIVE, 6, 0, 60, 61 };
        for (int i = 0; i < 2; i++) {
            struct vgpu_slot_device *d = &s->devices[i];
            for (int kind = 0; kind < VGPU_KINDS; kind++)
                d->bytes[kind] = 1000 * (i + 1) + kind;
            d->allocations = 70 + i; d->refusals = 80 + i; d->launches = 90 + i; d->throttled_ns = 95 + i;
        }
        for (int i = 0; i < VGPU_DEVICES; i++)
            memset(&usage.devices[i], 0xff, sizeof usage.devices[i]);
        FILE *out = fopen(argv[1], "wb");
        fwrite(&control, sizeof control, 1, out);
        fclose(out);
        out = fopen(argv[2], "wb");
        fwrite(&usage, sizeof usage, 1, out);
        return fclose(out) + argc - 3;
    }"""
    program = built.compile(tmp_path / "write", source)
    paths = [tmp_path / "control", tmp_path / "usage"]
    subprocess.run([*built.machine.runner, program, *paths], check=True, timeout=60)

    control = limits.decode_control(paths[0].read_bytes())
    (process,) = limits.decode_usage(paths[1].read_bytes(), 2)

    blocked = limits.DeviceFlag.BLOCKED
    assert control == Control(
        devices=(
            DeviceLimit("GPU-0", 100, 30, 200, blocked, 400),
            DeviceLimit("GPU-1", None, 31, 201, blocked, 401),
        ),
        flags=limits.ClaimFlag.ALLOW_DISABLE,
        core_policy=limits.CorePolicy.FORCE,
        priority=7,
        generation=4,
        feed_sequence=6,
        measured_at_ns=11,
        processes={255: DriverUsage(5, limits.PROCESS_GONE, 50, (500, 501))},
    )
    assert limits.encode_control(control) == paths[0].read_bytes()
    assert (process.slot, process.pid, process.start_time) == (255, 6, 60)
    assert process.pid_namespace == 61
    assert [device.data_bytes for device in process.devices] == [1000, 2000]
    assert process.devices[1] == limits.DeviceUsage(
        2000, 2001, 2002, 2003, 2004, 2005, 71, 81, 91, 96
    )


def test_the_readers_record_names_the_headers_fields() -> None:
    assert _fields("vgpu_slot_device") == [
        "bytes", "allocations", "refusals", "launches", "throttled_ns", "pending",
        "reserved",
    ]  # fmt: skip
    kinds = re.findall(r"VGPU_(\w+),", _HEADER.split("enum vgpu_kind {")[1].split("};")[0])
    names = [name.removesuffix("_bytes") for name in limits.DeviceUsage.__slots__][: len(kinds)]
    assert [kind.lower() for kind in kinds] == names


@pytest.mark.foreign(pages=(4096, 65536))
def test_the_agent_reads_what_a_process_holds(container: Container) -> None:
    path = container.claim(*(DeviceLimit(uuid, 1000 << 20) for uuid in UUIDS))

    pid = container.run("""
        cuda = Cuda()
        cuda.alloc(10 * MIB); cuda.managed(20 * MIB); cuda.array2d(1 << 20, 30)
        cuda.alloc_async(32 * MIB); cuda.launch_graph(cuda.graph(50 * MIB)); cuda.create(2 * MIB)
        cuda.alloc(4000 * MIB)
        Cuda(1).alloc(7 * MIB)
        tell(os.getpid())
    """)
    (process,) = limit_files.read_usage(path / "usage", 2)

    first, second = process.devices
    assert process.pid == pid
    assert process.is_plausible
    assert (first.data_bytes >> 20, first.managed_bytes >> 20, first.array_bytes >> 20) == (
        12,
        20,
        30,
    )
    assert (first.pool_bytes >> 20, first.graph_bytes >> 20, first.refusals) == (32, 50, 1)
    assert (second.total_bytes >> 20, second.refusals) == (7, 0)


_OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["alloc", "managed", "create", "array", "pool", "free", "fail"]),
        st.integers(0, 1),
        st.integers(1, 40),
    ),
    max_size=40,
)

_SERVER = """
    cudas = [Cuda(0), Cuda(1)]
    frees = {
        "alloc": lambda c, a: c.free(a), "managed": lambda c, a: c.free(a),
        "create": lambda c, a: c.release(a), "pool": lambda c, a: c.free_async(a),
        "array": lambda c, a: c.call("cuArrayDestroy", a),
    }
    makes = {
        "alloc": lambda c, n: c.alloc(n), "managed": lambda c, n: c.managed(n),
        "create": lambda c, n: c.create(n), "array": lambda c, n: c.array2d(1 << 20, n >> 20),
        "pool": lambda c, n: c.alloc_async(n),
    }
    for line in sys.stdin:
        held, results = [], []
        for name, device, size in json.loads(line):
            cuda = cudas[device]
            cuda.use(device)
            if name == "fail":
                cuda.fail("cuMemAlloc_v2", 719, after=size % 3)
            elif name == "free":
                if held:
                    kind, device, address = held.pop(size % len(held))
                    cudas[device].use(device)
                    assert frees[kind](cudas[device], address) == OK
            else:
                before = cuda.used()
                result, address = makes[name](cuda, 2 * size * MIB)
                assert result in (OK, OUT_OF_MEMORY, 719)
                if result == OK:
                    held.append((name, device, address))
                if result == 719:
                    assert cuda.used() == before
            books = []
            for device in (0, 1):
                cudas[device].use(device)
                books.append([cudas[device].used(), cudas[device].fake_used(device)])
            results.append(books)
        for kind, device, address in held:
            cudas[device].use(device)
            assert frees[kind](cudas[device], address) == OK
        for device in (0, 1):
            cudas[device].use(device)
            cudas[device].synchronize()
            cudas[device].fail("none", 0)
        tell([results, [[c.use(i), c.used(), c.fake_used(i)][1:] for i, c in enumerate(cudas)]])
"""


def test_the_books_are_what_the_card_holds_after_every_step(limited: Container) -> None:
    """Whatever is allocated, freed and failed, in any order: the fake card is the model."""
    process = limited.start("import json\n" + _SERVER.replace("\n    ", "\n"))
    assert process.stdin is not None
    assert process.stdout is not None

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(_OPERATIONS)
    def run(operations: list[tuple[str, int, int]]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(operations) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, process.stderr.read() if process.stderr else ""
        steps, rest = json.loads(answer)
        for books in steps:
            for ours, card in books:
                assert ours == card <= 1000 << 20
        assert rest == [[0, 0], [0, 0]]

    run()
