"""The parts of the benchmark, each with all of its entrants measured in turns."""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hami_dra.lab.process import Launcher
from hami_dra.lab.scene import scene
from tests.bench.webhook import end_to_end, machine, programs, report, reviews, servers
from tests.bench.webhook.end_to_end import Limits
from tests.bench.webhook.rounds import Entrant, Load, alternate

_POINTS: Final = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        rounds: turns of each entrant.
        seconds: of one turn.
        pod_rounds: turns of each kind of pods.
        pods: created in a turn with 200 requests a second, and with 20.
        reviews: answered while memory is watched.
    """

    rounds: int = 5
    seconds: float = 4
    pod_rounds: int = 5
    pods: tuple[int, int] = (150, 60)
    reviews: int = 500_000


QUICK: Final = Plan(rounds=2, seconds=1, pod_rounds=1, pods=(60, 40), reviews=20_000)
"""Enough to see that everything works; its figures are rough."""


class Bench:
    """One run of the benchmark.

    Args:
        plan: how much is measured; an attribute too.
        directory: for its files.

    Attributes:
        cores: where both sides run.
    """

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan = plan
        self.cores = machine.cores()
        self._programs = programs.directory()
        self._load = Load(self._programs / "load", self.cores)
        self._start = time.monotonic()
        self._different = directory / "different.json"
        self._different.write_bytes(reviews.different())
        self._replicas = directory / "replicas.json"
        self._replicas.write_bytes(reviews.replicas())

    def say(self, text: str) -> None:
        """Show what happens, and when since the start."""
        print(f"[{time.monotonic() - self._start:5.1f} s] {text}", file=sys.stderr, flush=True)

    def service(self) -> str:
        """Measure the webhook without a cluster beside those that call nobody either."""
        core = self.cores.server
        with _launcher() as launcher:
            self.say("starting the webhook, FastAPI with pydantic, and a typed Go webhook")
            ours = servers.start_ours(launcher, core)
            entrants = [
                Entrant(ours, self._different),
                Entrant(servers.start_ordinary(launcher, core), self._different),
                Entrant(
                    servers.start_typed(launcher, core, self._programs / "typed"), self._different
                ),
                Entrant(ours, self._replicas, "pods of one ReplicaSet"),
            ]
            self._alternate(entrants)
        return f"Reviews of pods that all differ\n\n{report.service(entrants[0], entrants)}"

    def claims(self) -> str:
        """Measure the webhook in a cluster beside one that creates a claim for each container."""
        core = self.cores.server
        with scene({}, say=self.say) as shown:
            # Who writes during a review makes the control plane work, which belongs to the price.
            for process in shown.cluster.processes.values():
                servers.pin(process.pid, core)
            double = servers.start_claims(shown.cluster, core, self._programs / "claims")
            entrants = [
                Entrant(servers.start_in_cluster(shown.cluster, core), self._different),
                Entrant(double, self._different),
            ]

            def clean() -> None:
                shown.api.delete_all("resourceclaims", "default")

            self._alternate(entrants, clean)
        return f"Beside a claim for each container\n\n{report.service(entrants[0], entrants)}"

    def end_to_end(self) -> str:
        """Measure pods from creation to a node, with both limits of the controller-manager."""
        plan = self.plan
        many, few = plan.pods
        with scene(end_to_end.NODES, say=self.say) as shown:
            outcomes = [
                end_to_end.measure(
                    shown.cluster, shown.api, limits, rounds=plan.pod_rounds, say=self.say
                )
                for limits in (Limits(200, 400, many), Limits(20, 30, few))
            ]
        return f"From creation to a node\n\n{report.end_to_end(outcomes)}"

    def memory(self) -> str:
        """Watch the webhook's memory in a cluster over many reviews."""
        found = []
        step = self.plan.reviews // _POINTS
        with scene({}, say=self.say) as shown:
            ours = servers.start_in_cluster(shown.cluster, self.cores.server)
            for point in range(_POINTS + 1):
                if point:
                    self._load.send(ours, self._different, reviews=step)
                found.append((point * step, machine.resident_mib(ours.pid)))
                self.say(f"{point * step} reviews: {found[-1][1]:.1f} MiB")
        return f"Resident memory\n\n{report.memory(found)}"

    def _alternate(self, entrants: list[Entrant], after: Callable[[], None] = lambda: None) -> None:
        plan = self.plan
        alternate(
            self._load,
            entrants,
            rounds=plan.rounds,
            seconds=plan.seconds,
            say=self.say,
            after=after,
        )


@contextmanager
def _launcher() -> Iterator[Launcher]:
    launcher = Launcher(Path(tempfile.mkdtemp(prefix="hami-dra-bench-")) / "run")
    try:
        yield launcher
    finally:
        launcher.stop_all()
        launcher.directory.parent.rmdir()
