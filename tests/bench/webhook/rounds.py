"""Send reviews to one server after the other, round by round, and keep what was found."""

import json
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.bench.webhook.machine import Cores, busy_seconds, cpu_seconds, resident_mib
from tests.bench.webhook.servers import Server, pinned

CONNECTIONS: Final = 16
"""Connections of the load generator, each with one review under way."""

_WARM_UP_S: Final = 0.5
_NUMBERS: Final = 10**9  # of reviews that one call can send before it repeats another's


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of one entrant; latencies in microseconds.

    Attributes:
        rate: reviews a second.
        p50: the median latency.
        p99: the latency that one review in a hundred exceeds.
        cpu: processor time of the server for a review, in microseconds.
        others: share of the machine that neither the server nor the load generator used, 0 to 1.
    """

    rate: float
    p50: float
    p99: float
    cpu: float
    others: float


@dataclass(slots=True)
class Entrant:
    """A server and the reviews that it is sent.

    Attributes:
        server: who answers.
        body: the file with the review.
        note: what distinguishes it from others with the same server.
        samples: one a round.
        memory_mib: resident memory of the server after each round.
    """

    server: Server
    body: Path
    note: str = ""
    samples: list[Sample] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"{self.server.name}, {self.note}" if self.note else self.server.name

    def median(self, of: Callable[[Sample], float]) -> float:
        """Return the median of a figure over all rounds."""
        return statistics.median(map(of, self.samples))


class LoadError(Exception):
    """A server answered wrongly, so its figures would mean nothing."""


class Load:
    """The load generator, on its own core.

    Args:
        program: the generator.
        cores: where both sides run.
    """

    def __init__(self, program: Path, cores: Cores) -> None:
        self._program = program
        self._cores = cores
        self._next = 1

    def send(self, server: Server, body: Path, *, seconds: float = 0, reviews: int = 0) -> Sample:
        """Send reviews for some time, or so many.

        Raises:
            LoadError: if any was not admitted with a patch.
        """
        before, busy, start = cpu_seconds(server.pid), busy_seconds(), time.monotonic()
        generator = resource.getrusage(resource.RUSAGE_CHILDREN)
        argv = [
            *(str(self._program), "-address", server.address, "-authority", str(server.authority)),
            *("-body", str(body), "-connections", str(CONNECTIONS), "-first", str(self._next)),
            *("-duration", f"{seconds}s", "-reviews", str(reviews)),
        ]
        self._next += _NUMBERS
        done = subprocess.run(
            pinned(self._cores.load, argv), check=True, stdout=subprocess.PIPE, text=True
        )
        found = json.loads(done.stdout)
        if found["failures"] or not found["reviews"]:
            raise LoadError(
                f"{server.name}: found {found['failures']} failures in {found['reviews']} reviews,"
                f" expected none; the last one: {found.get('failure')}"
            )
        cpu_s = cpu_seconds(server.pid) - before
        ours_s = cpu_s + _used(resource.getrusage(resource.RUSAGE_CHILDREN)) - _used(generator)
        whole_s = (time.monotonic() - start) * (os.cpu_count() or 1)
        return Sample(
            rate=found["reviews"] / found["seconds"],
            p50=found["p50"],
            p99=found["p99"],
            cpu=cpu_s * 1e6 / found["reviews"],
            others=max(0.0, (busy_seconds() - busy - ours_s) / whole_s),
        )


def _used(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def alternate(
    load: Load,
    entrants: Sequence[Entrant],
    *,
    rounds: int,
    seconds: float,
    say: Callable[[str], None],
    after: Callable[[], None] = lambda: None,
) -> None:
    """Give each entrant its turn in each round, so that the machine's moods hit all alike.

    Args:
        load: the generator.
        entrants: whose samples grow.
        rounds: how often.
        seconds: of one measurement.
        say: told what happens.
        after: called after each turn, outside of the measurement.
    """
    for number in range(1, rounds + 1):
        for entrant in entrants:
            load.send(entrant.server, entrant.body, seconds=_WARM_UP_S)
            sample = load.send(entrant.server, entrant.body, seconds=seconds)
            entrant.samples.append(sample)
            entrant.memory_mib.append(resident_mib(entrant.server.pid))
            say(f"round {number}/{rounds}  {entrant.name:<40} {sample.rate:8.0f} reviews/s")
            after()
