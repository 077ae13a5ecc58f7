"""The command line. Each command imports its folder only when it runs, so that help is instant.

Exit codes: 0 done; 1 a sweep left points missing, or a check asked for with --strict or --baseline failed;
2 a mistake in what was given; 130 and 143 interrupted, and the same command goes on.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from bscrit.errors import UserError, UserErrors

app = typer.Typer(
    name="bscrit",
    help="Measure the critical batch size of your model: steps and examples to a target loss.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run a command; a user's mistake is two lines on stderr and exit code 2."""
    try:
        app()
    except UserError as error:
        prefix = "" if isinstance(error, UserErrors) else "error: "
        print(f"{prefix}{error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read us has left; nothing is to be said
        sys.exit(141)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        from bscrit import __version__

        print(f"bscrit {__version__}")
        raise typer.Exit


@app.command()
def sweep(
    spec: Annotated[Path, typer.Argument(help="The sweep's TOML file.", metavar="SPEC.toml")],
    out: Annotated[Path | None, typer.Option(help="Results folder [default: results/NAME of the spec].")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Override one key of the spec; repeatable."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check, print the plan, train nothing.")] = False,
) -> None:
    """Train at every batch size to the targets, the learning rate tuned at each.

    Interrupted and started again, it goes on where it was and repeats no finished trial.
    """
    from bscrit.sweep import command

    raise typer.Exit(command.sweep(spec, out, settings or [], dry_run))


@app.command()
def schema(
    of: Annotated[str, typer.Argument(help="spec: of a sweep's TOML file; fit: of fit.json.")] = "spec",
) -> None:
    """Print a JSON Schema, for editors and scripts."""
    from importlib.resources import files

    from bscrit.errors import nearest

    found = {"spec": files("bscrit") / "spec.schema.json", "fit": files("bscrit") / "fit" / "fit.schema.json"}
    if of not in found:
        raise UserError(f"bscrit schema {of}", "there is no such schema", nearest(of, found))
    print(found[of].read_text("utf-8"), end="")
