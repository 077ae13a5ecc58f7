"""The command line. Each command imports its folder only when it runs, so that help is instant.

Exit codes: 0 done; 1 a sweep left points missing, or a check asked for with --strict or --baseline failed;
2 a mistake in what was given, or a file that cannot be written; 130 and 143 interrupted, and the same command goes on.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from bscrit.errors import UserError, UserErrors

app = typer.Typer(
    name="bscrit",
    help="Measure the critical batch size of your model: steps and examples to a target loss.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run a command; a user's mistake is two lines on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without the letters of a name
    try:
        app()
        sys.stdout.flush()
    except UserError as error:
        prefix = "" if isinstance(error, UserErrors) else "error: "
        print(f"{prefix}{error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read us has left; nothing is to be said
        sys.exit(141)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        os._exit(2)  # an ordinary exit would write to the same full disk, and fail again


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        from bscrit.version import VERSION

        print(f"bscrit {VERSION}")
        raise typer.Exit


@app.command()
def sweep(
    spec: Annotated[Path, typer.Argument(help="The sweep's TOML file.", metavar="SPEC.toml")],
    out: Annotated[
        Path | None, typer.Option(help="Results folder [default: results/NAME of the spec].")
    ] = None,
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


_TARGETS = typer.Option(
    metavar="A,B,C",
    help="Losses (or another metric) to fit; left out, those of the sweep or all in the table. A table of curves "
    "needs them.",
)
_COLUMNS = typer.Option(metavar="ROLE=COLUMN", help="Map a column, as steps=iter; repeatable.")
_BY = typer.Option(metavar="COLUMN", help="Fit each value of this column on its own; repeatable.")
_DIRECTION = typer.Option(metavar="down|up", help="Where a metric gets better, if its name does not say.")
_UNIT = typer.Option(metavar="NAME", help="What a batch size counts: image, token, frame.")


@app.command()
def fit(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="A results folder, or a table (CSV, TSV, JSONL, Parquet, - for stdin), or a noise.csv alone.",
        ),
    ],
    targets: Annotated[str | None, _TARGETS] = None,
    columns: Annotated[list[str] | None, _COLUMNS] = None,
    by: Annotated[list[str] | None, _BY] = None,
    direction: Annotated[str | None, _DIRECTION] = None,
    unit: Annotated[str | None, _UNIT] = None,
    noise: Annotated[
        list[str] | None,
        typer.Option(
            metavar="noise.csv,...",
            help="What a meter wrote, to set against the fits of a table; repeatable.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (bscrit schema fit).")] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit 1 unless every B_crit is identified without serious caveat."),
    ] = False,
    widest: Annotated[
        float | None,
        typer.Option(
            help="Ratio of the ends of B_crit's interval beyond which it has a serious caveat [default: 4]."
        ),
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="Exit 1 when B_crit moved beyond both intervals of this fit.json.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="64,256", help="Overheads in steps and examples at these batch sizes."),
    ] = None,
    step_times: Annotated[
        str | None,
        typer.Option(
            metavar="64=0.11,512x4=0.15",
            help="Measured seconds per step at a batch size (on so many devices): what is fastest, and cheapest.",
        ),
    ] = None,
    devices: Annotated[
        str | None, typer.Option(metavar="1,2,8", help="Numbers of devices to compare with --step-times.")
    ] = None,
    law: Annotated[
        str | None,
        typer.Option(metavar="loss|parameters|data", help="Follow B_crit across the fits of all sources."),
    ] = None,
) -> None:
    """S_min, E_min and B_crit with 95 % intervals, a verdict and caveats, from any source.

    A warning is a serious caveat: the answer may well be wrong although it looks right. A caution says that it is less
    sure or less useful than it looks.

    Without --strict and --baseline the exit code is 0 also when nothing is identified: the verdict is the
    answer.
    """
    from bscrit.fit import command
    from bscrit.fit.answers import parse_questions

    code = command.run(
        sources,
        as_json=as_json,
        strict=strict,
        baseline=baseline,
        questions=parse_questions(at, step_times, devices, law),
        targets=targets,
        columns=columns,
        by=by or (),
        direction=direction,
        unit=unit,
        noise=noise or (),
        widest=widest,
    )
    raise typer.Exit(code)


@app.command()
def plot(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A results folder, or a table.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the figures [default: SOURCE/figures; of runs.csv, runs-figures beside it]."
        ),
    ] = None,
    formats: Annotated[
        str, typer.Option("--format", metavar="png,svg,pdf", help="Formats, separated by commas.")
    ] = "png",
    figures: Annotated[
        list[str] | None,
        typer.Option(
            "--figure",
            metavar="NAME",
            help="Only this figure, such as frontier; repeatable. A name that is none lists them all.",
        ),
    ] = None,
    targets: Annotated[str | None, _TARGETS] = None,
    columns: Annotated[list[str] | None, _COLUMNS] = None,
    by: Annotated[list[str] | None, _BY] = None,
    direction: Annotated[str | None, _DIRECTION] = None,
    unit: Annotated[str | None, _UNIT] = None,
) -> None:
    """Draw the frontier, steps, rates, curves and the noise scale; prints the paths of the figures."""
    # figures need no backend, yet matplotlib refuses to load where the environment names one it does not know
    os.environ["MPLBACKEND"] = "agg"
    from bscrit.plot import command

    code = command.run(
        source,
        out,
        formats.split(","),
        figures or [],
        targets=targets,
        columns=columns,
        by=by or (),
        direction=direction,
        unit=unit,
    )
    raise typer.Exit(code)


@app.command()
def schema(
    of: Annotated[str, typer.Argument(help="spec: of a sweep's TOML file; fit: of fit.json.")] = "spec",
) -> None:
    """Print a JSON Schema, for editors and scripts."""
    import json
    from importlib.resources import files

    from bscrit.errors import nearest
    from bscrit.spec import json_schema

    if of == "spec":
        print(json.dumps(json_schema(), indent=1))
    elif of == "fit":
        print((files("bscrit") / "fit" / "fit.schema.json").read_text("utf-8"), end="")
    else:
        raise UserError(f"bscrit schema {of}", "there is no such schema", nearest(of, ["spec", "fit"]))
