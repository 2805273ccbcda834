"""`hami-dra policy`: show, check, describe and import policy files."""

import json
from pathlib import Path
from typing import Annotated

import typer

from hami_dra.cli.exits import UNREADABLE, fail
from hami_dra.cli.options import PolicyFile
from hami_dra.cli.sources import UnreadableError, read_text
from hami_dra.cli.target import read_policy
from hami_dra.migration import Family
from hami_dra.migration.presets import PRESETS
from hami_dra.policies import PolicyFileError
from hami_dra.policies.device_config import import_device_config
from hami_dra.policies.difference import differences
from hami_dra.policies.fields import notes
from hami_dra.policies.file import document
from hami_dra.policies.render import render
from hami_dra.policies.schema import schema

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Say what a migration means: resource names, DeviceClasses, defaults and rules.",
    short_help="Show, check and import policy files.",
    epilog="Example: hami-dra policy show > policy.yaml; hami-dra policy check policy.yaml",
)


@app.command(
    short_help="Print the whole policy, every field explained.",
    epilog="Example: hami-dra policy show > policy.yaml",
)
def show(policy: PolicyFile = None) -> None:
    """Print the whole policy as a commented file that says the same when it is loaded."""
    typer.echo(render(document(read_policy(policy)), notes()), nl=False)


@app.command(
    short_help="Tell whether a policy file can be used, and what it changes.",
    epilog="Example: hami-dra policy check policy.yaml",
)
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The policy file.")],
) -> None:
    """Say whether a policy file can be used, and what it changes, in one line each.

    Exit codes: 0 it can be used, 1 it cannot, and every problem is listed.
    """
    found = differences(read_policy(file))
    for line in found or [f"{file}: nothing differs from the defaults"]:
        typer.echo(line)


@app.command(
    "schema",
    short_help="Print a JSON Schema for editors.",
    epilog="Example: hami-dra policy schema > policy.schema.json",
)
def schema_command() -> None:
    """Print the JSON Schema of policy files, by which editors complete and check them."""
    typer.echo(json.dumps(schema(), indent=2))


@app.command(short_help="List the families that ship.", epilog="Example: hami-dra policy presets")
def presets() -> None:
    """List the families that a policy can name, with their resources and DeviceClass."""
    rows = [("NAME", "DEVICECLASS", "RESOURCES"), *(_row(each) for each in PRESETS.values())]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for name, device_class, resources in rows:
        typer.echo(f"{name:<{widths[0]}}  {device_class:<{widths[1]}}  {resources}")


def _row(family: Family) -> tuple[str, str, str]:
    return family.name, family.device_class or "(none)", " ".join(family.managed_names)


@app.command(
    "import",
    short_help="Turn HAMi's device-config.yaml into a policy.",
    epilog="Example: kubectl get configmap -n kube-system hami-scheduler-device -o yaml |"
    " hami-dra policy import - > policy.yaml",
)
def import_command(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="HAMi's device-config.yaml, or the ConfigMap that holds it; - reads standard"
            " input.",
        ),
    ],
) -> None:
    """Print the policy file that means what HAMi's device configuration means.

    What a policy does not hold, because it belongs to the nodes or because no DRA driver is known,
    is listed on standard error.
    """
    try:
        imported = import_device_config(read_text(file), file)
    except UnreadableError as error:
        fail(str(error), code=UNREADABLE)
    except PolicyFileError as error:
        fail(f"this device configuration cannot be read\n{error}", code=UNREADABLE)
    typer.echo(imported.policy, nl=False)
    for remark in imported.remarks:
        typer.echo(remark, err=True)
