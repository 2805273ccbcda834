"""How fast the webhook answers, beside what others would have written: `make bench-webhook`."""

import os
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tests.bench.webhook import machine, reviews
from tests.bench.webhook.bench import QUICK, Bench, Plan
from tests.bench.webhook.rounds import CONNECTIONS


class Part(StrEnum):
    """What can be measured."""

    SERVICE = "service"
    CLAIMS = "claims"
    END_TO_END = "end-to-end"
    MEMORY = "memory"


_EVERY = (Part.SERVICE, Part.CLAIMS, Part.END_TO_END)

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def main(
    part: Annotated[
        list[Part] | None,
        typer.Option(help="Measure this part only; can be given several times."),
    ] = None,
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="A minute instead of five; rough figures.")
    ] = False,
    long: Annotated[
        bool, typer.Option("--long", help="Also answer 500,000 reviews and watch the memory.")
    ] = False,
) -> None:
    """Measure the webhook beside its alternatives, in turns, in one run on this machine.

    service: reviews of pods that all differ, against an ordinary FastAPI endpoint with pydantic
    models and against a Go webhook that decodes the pod into its type; pods of one ReplicaSet stand
    in a row of their own.

    claims: against a webhook that creates a claim for each container in a real API server.

    end-to-end: pods a second from creation to a node, against pods written for DRA by hand, with
    raised limits of the controller-manager and with its default ones.

    memory: resident memory over many reviews.

    It reports and judges nothing: the exit code is 0 whatever the figures are.
    """
    chosen = part or [*_EVERY, *([Part.MEMORY] if long else [])]
    with tempfile.TemporaryDirectory(prefix="hami-dra-bench-") as directory:
        bench = Bench(QUICK if quick else Plan(), Path(directory))
        run = {
            Part.SERVICE: bench.service,
            Part.CLAIMS: bench.claims,
            Part.END_TO_END: bench.end_to_end,
            Part.MEMORY: bench.memory,
        }
        print(_conditions(bench), flush=True)
        for one in chosen:
            print(f"\n{run[one]()}", flush=True)


def _conditions(bench: Bench) -> str:
    """Say what was measured, where and how."""
    body = reviews.different().replace(reviews.UID.encode(), b"0" * 36)
    size = len(body.replace(reviews.ID.encode(), b"0" * 16))
    return (
        f"{machine.describe()}; load average {os.getloadavg()[0]:.1f} at the start\n"
        f"TLS, {CONNECTIONS} connections, review of {size} bytes with a GPU pod of a known shape;"
        f" {bench.plan.rounds} rounds in turns, medians;"
        f" server on core {bench.cores.server}, load on core {bench.cores.load}"
    )


if __name__ == "__main__":
    app(prog_name="python -m tests.bench.webhook")
