"""The share of compute: the average over seconds is the limit, whatever is launched."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.native.budget import MS, SECOND, Budget
from tests.native.conftest import NATIVE, Built


@pytest.fixture(scope="session")
def arithmetic(built: Built) -> ctypes.CDLL:
    """The pure part of the limiter, as a library of its own."""
    source = '#include "../src/budget.c"\n'
    library = built.compile(
        built.directory / "budget.so", source, "-shared", "-fPIC", f"-I{NATIVE}/src"
    )
    loaded = ctypes.CDLL(str(library))
    for name in ("vgpu_budget_spend", "vgpu_budget_is_open"):
        getattr(loaded, name).restype = ctypes.c_bool
    loaded.vgpu_budget_refill.argtypes = (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64)
    loaded.vgpu_budget_true_up.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
    loaded.vgpu_budget_sample.argtypes = (
        ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint32
    )  # fmt: skip
    loaded.vgpu_budget_wait_ns.restype = ctypes.c_uint64
    loaded.vgpu_budget_cost_ns.restype = ctypes.c_uint64
    return loaded


@dataclass
class _Tenant:
    """A program with a limit that launches as fast as it may."""

    percent: int
    kernel_ns: Callable[[int], int]
    kernels: int = 1
    waits: bool = False
    busy_ns: int = 0
    launched: int = 0
    asleep_until: int = 0

    def __post_init__(self) -> None:
        self.budget = Budget()
        self.queue: list[int] = []


class _World:
    """One card on a virtual clock, which an agent measures every 100 ms."""

    def __init__(self, arithmetic: ctypes.CDLL, *tenants: _Tenant) -> None:
        self.arithmetic = arithmetic
        self.tenants = tenants
        self.now = SECOND
        self.line: list[tuple[_Tenant, int]] = []
        self.running_until = self.now

    def run(self, until: int) -> None:
        while self.now < until:
            for tenant in self.tenants:
                self._launch_all(tenant)
            self._advance(MS)
            if self.now % (100 * MS) == 0:
                for tenant in self.tenants:
                    self.arithmetic.vgpu_budget_true_up(
                        ctypes.byref(tenant.budget), tenant.busy_ns, self.now
                    )

    def _launch_all(self, tenant: _Tenant) -> None:
        budget = ctypes.byref(tenant.budget)
        while self.now >= tenant.asleep_until:
            if tenant.waits and any(owner is tenant for owner, _ in self.line):
                return
            if len([1 for owner, _ in self.line if owner is tenant]) >= 1024:
                return
            if tenant.launched and not self.arithmetic.vgpu_budget_is_open(budget):
                self.arithmetic.vgpu_budget_refill(budget, tenant.percent, self.now)
                if not self.arithmetic.vgpu_budget_is_open(budget):
                    return
            self.arithmetic.vgpu_budget_spend(budget, tenant.kernels)
            tenant.launched += 1
            self.line.append((tenant, tenant.kernels * tenant.kernel_ns(self.now)))

    def _advance(self, step: int) -> None:
        left = step
        while left and self.line:
            tenant, need = self.line[0]
            done = min(left, need)
            tenant.busy_ns += done
            left -= done
            if done == need:
                self.line.pop(0)
                self.arithmetic.vgpu_budget_done(ctypes.byref(tenant.budget), tenant.kernels)
            else:
                self.line[0] = (tenant, need - done)
        self.now += step


def _shares(world: _World, seconds: int = 20) -> list[float]:
    """Return the percentages of the card after a start of two seconds."""
    world.run(3 * SECOND)
    before = [tenant.busy_ns for tenant in world.tenants]
    start = world.now
    world.run(start + seconds * SECOND)
    used = zip(world.tenants, before, strict=True)
    return [100 * (tenant.busy_ns - b) / (world.now - start) for tenant, b in used]


_LOADS = {
    "a loop of kernels": {"kernel_ns": lambda _: 2 * MS},
    "small kernels": {"kernel_ns": lambda _: 50_000},
    "graphs": {"kernel_ns": lambda _: 100_000, "kernels": 20},
    "one big kernel, then a wait": {"kernel_ns": lambda _: 300 * MS, "waits": True},
    "kernels that change their size": {
        "kernel_ns": lambda now: 200_000 if now // SECOND % 2 else 5 * MS
    },
}


@pytest.mark.parametrize("percent", [10, 25, 50, 75])
@pytest.mark.parametrize("load", _LOADS)
def test_the_average_is_the_limit(arithmetic: ctypes.CDLL, load: str, percent: int) -> None:
    (share,) = _shares(_World(arithmetic, _Tenant(percent, **_LOADS[load])))  # type: ignore[arg-type]

    assert share == pytest.approx(percent, abs=3)


@pytest.mark.parametrize("percents", [(30, 70), (10, 90), (20, 50)])
@pytest.mark.parametrize("kernel_ns", [(MS, MS), (MS, 3 * MS), (50_000, 3 * MS)])
def test_two_containers_on_one_card_get_their_shares(
    arithmetic: ctypes.CDLL, percents: tuple[int, int], kernel_ns: tuple[int, int]
) -> None:
    """A card that is asked for all its time gives each its share and stands still for none."""
    tenants = [
        _Tenant(percent, kernel_ns=lambda _, ns=ns: ns)  # type: ignore[misc]
        for percent, ns in zip(percents, kernel_ns, strict=True)
    ]

    assert _shares(_World(arithmetic, *tenants)) == pytest.approx(percents, abs=2)


def test_where_nobody_measures_timed_launches_tell_the_cost(arithmetic: ctypes.CDLL) -> None:
    """Half of the launches are timed, each for two, and their kinds are mixed without order."""
    budget, spent = Budget(credit_ns=0), 0
    for number in range(2000):
        ns = [100_000, 2 * MS, 300_000][number * number % 3]
        expected = arithmetic.vgpu_budget_cost_ns(ctypes.byref(budget))
        arithmetic.vgpu_budget_spend(ctypes.byref(budget), 1)
        spent += ns
        if number % 2:
            arithmetic.vgpu_budget_sample(ctypes.byref(budget), ns, 1, expected, 2)
        budget.credit_ns, earned = 0, budget.credit_ns
        spent += earned

    assert abs(spent) < 0.1 * 2000 * MS


def test_time_that_was_not_used_is_not_saved_up(arithmetic: ctypes.CDLL) -> None:
    tenant = _Tenant(50, kernel_ns=lambda _: MS)
    world = _World(arithmetic, tenant)
    tenant.asleep_until = 60 * SECOND
    world.run(60 * SECOND)
    before = tenant.busy_ns
    world.run(61 * SECOND)

    assert (tenant.busy_ns - before) / SECOND == pytest.approx(0.5, abs=0.25)


@pytest.mark.parametrize("number", [0, 2**63, 2**64 - 1])
def test_a_damaged_budget_makes_no_endless_wait(arithmetic: ctypes.CDLL, number: int) -> None:
    tenant = _Tenant(10, kernel_ns=lambda _: MS)
    names = [name for name, kind, *_ in Budget._fields_ if kind is not Budget._fields_[0][1]]
    for name in names:
        setattr(tenant.budget, name, number)
    world = _World(arithmetic, tenant)
    tenant.launched = 1

    assert arithmetic.vgpu_budget_wait_ns(ctypes.byref(tenant.budget), 10) <= 50 * SECOND
    world.run(70 * SECOND)
    assert tenant.launched > 10
