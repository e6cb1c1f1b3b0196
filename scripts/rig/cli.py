"""The command line: every `make` target is one of these commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.table import Table

from rig.console import console, out
from rig.errors import RigError
from rig.layout import Layout, layout_of_this_checkout
from rig.pins import Arch, Flavour, Pin, find_pin, read_pins

app = typer.Typer(
    help="A patch series on pinned vLLM releases: apply, build, prove, rehearse, serve.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
pins_app = typer.Typer(help="The pinned releases.", invoke_without_command=True)
app.add_typer(pins_app, name="pins")

Version = Annotated[
    str | None, typer.Argument(help="A pinned release such as 0.32.0; the primary one if absent.")
]


def _start(version: str | None) -> tuple[Layout, Pin]:
    layout = layout_of_this_checkout()
    return layout, find_pin(layout, version or None)


@pins_app.callback()
def list_pins(context: typer.Context) -> None:
    """List the pinned releases."""
    if context.invoked_subcommand:
        return
    layout = layout_of_this_checkout()
    table = Table("version", "role", "commit", "torch", "wheels", "skips", "lock")
    for pin in read_pins(layout):
        wheels = "\n".join(f"{f}: {', '.join(by)}" for f, by in pin.wheels.items())
        has_lock = "yes" if layout.lock(pin.version).is_file() else "no"
        skips = ", ".join(pin.skip) or "-"
        table.add_row(pin.version, pin.role, pin.commit, pin.torch, wheels, skips, has_lock)
    out.print(table)


@pins_app.command("add")
def pins_add(version: Annotated[str, typer.Argument(help="A release on the index.")]) -> None:
    """Write a new pin from the package index, for review."""
    from rig.pin_add import add_pin

    layout = layout_of_this_checkout()
    left = add_pin(layout, version)
    out.print(f"written  patches/pins/{version}.toml")
    for step in left:
        out.print(f"  next: {step}")


@app.command()
def apply(
    version: Version = None,
    discard: Annotated[
        bool, typer.Option(help="Replace an edited tree; it is moved aside, not deleted.")
    ] = False,
) -> None:
    """Make build/vllm-<version>: the release and one commit per patch, proven by the lock."""
    from rig.series.apply import apply as apply_series

    layout, pin = _start(version)
    tree = apply_series(layout, pin, discard=discard)
    state = "is already applied" if tree.was_there else "applied"
    out.print(
        f"{layout.shown(tree.folder)}: series {tree.series_digest[:12]} {state}, "
        f"{len(tree.patches)} patches, tree {tree.final_tree}"
    )


@app.command()
def refresh(version: Version = None) -> None:
    """Export the commits in build/ to patches/ and renew the locks."""
    from rig.series.refresh import refresh as refresh_series

    said = refresh_series(layout_of_this_checkout(), version or None)
    for line in said or ["nothing changed: patches/ held these commits already"]:
        out.print(line)


@app.command()
def verify(
    versions: Annotated[
        list[str] | None, typer.Argument(help="Pinned releases; all if absent.")
    ] = None,
    require_quilt: Annotated[
        bool, typer.Option(help="Fail when quilt is not installed, instead of saying so.")
    ] = False,
) -> None:
    """Prove the series on every pin, with git am, git apply and quilt as witnesses."""
    from rig.series.verify import verify as verify_series

    layout = layout_of_this_checkout()
    for version in versions or []:
        find_pin(layout, version)
    said = verify_series(layout, versions or None, require_quilt=require_quilt)
    out.print(f"verified: {len(said)} proofs hold")
    for line in said:
        if "NOT proven" in line:
            out.print(line)


def main() -> NoReturn:
    """Run a command; a failure that a person can act on is printed, not thrown."""
    try:
        app()
    except RigError as error:
        console.print(str(error), markup=False)
        sys.exit(1)
    except KeyboardInterrupt:
        console.print("interrupted", markup=False)
        sys.exit(130)
    sys.exit(0)


__all__ = ["Arch", "Flavour", "Path", "app", "main"]
