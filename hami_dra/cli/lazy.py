"""Commands that are imported when they are called, so that --help costs no more than its text."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup


class LazyGroup(TyperGroup):
    """A group whose commands are modules.

    A module has either a Typer application `app`, or a function `<name>_command` and its `EPILOG`.
    """

    table: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Name of each command to its module and what --help of the group says of it."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Return the names in the order of the table, those that are registered otherwise last."""
        return [*self.table, *(n for n in super().list_commands(ctx) if n not in self.table)]

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]  # noqa: ANN401
        """Import a command."""
        if cmd_name not in self.table:
            return super().get_command(ctx, cmd_name)
        name, summary = self.table[cmd_name]
        module = import_module(name)
        app = getattr(module, "app", None)
        if app is None:
            app = typer.Typer(rich_markup_mode=None, add_completion=False)
            function = getattr(module, f"{cmd_name}_command")
            app.command(cmd_name, short_help=summary, epilog=module.EPILOG)(function)
        return typer.main.get_command(app)

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # noqa: ANN401
        """Write the summaries of the table, without importing what they stand for."""
        rows = [(name, summary) for name, (_, summary) in self.table.items()]
        for name in super().list_commands(ctx):
            command = None if name in self.table else super().get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(limit=80)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)
