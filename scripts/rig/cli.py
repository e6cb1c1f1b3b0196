"""The command line: every `make` target is one of these commands."""

from __future__ import annotations

import io
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.table import Table

# typer brings its own click and exports only a part of it.
from typer._click.exceptions import ClickException, UsageError

from rig.console import console, out
from rig.errors import RigError, first_line_of_os_error, said_of_usage
from rig.git import require_git
from rig.layout import Layout, layout_of_this_checkout
from rig.pins import Arch, Flavour, Pin, find_pin, read_pins, this_arch
from rig.revision import read_revision

if TYPE_CHECKING:
    from rig.wheel.build import BuiltWheel

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
    require_git()
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
    version = version.removeprefix("v")
    left = add_pin(layout, version)
    out.print(f"written  patches/pins/{version}.toml")
    for step in left:
        out.print(f"  next: {step}")


@app.command()
def apply(
    version: Version = None,
    discard: Annotated[
        bool,
        typer.Option("--discard", help="Replace an edited tree; it is moved aside, not deleted."),
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

    require_git()
    said = refresh_series(layout_of_this_checkout(), version or None)
    for line in said or ["nothing changed: patches/ held these commits already"]:
        out.print(line)


@app.command()
def verify(
    versions: Annotated[
        list[str] | None, typer.Argument(help="Pinned releases; all if absent.")
    ] = None,
    require_quilt: Annotated[
        bool,
        typer.Option(
            "--require-quilt", help="Fail when quilt is not installed, instead of saying so."
        ),
    ] = False,
) -> None:
    """Prove the series on every pin, with git am, git apply and quilt as witnesses."""
    from rig.series.verify import verify as verify_series

    require_git()
    layout = layout_of_this_checkout()
    for version in versions or []:
        find_pin(layout, version)
    said = verify_series(layout, versions or None, require_quilt=require_quilt)
    out.print(f"verified: {len(said)} proofs hold")
    for line in said:
        if "NOT proven" in line:
            out.print(line)


@app.command()
def build(
    version: Version = None,
    flavor: Annotated[Flavour, typer.Option(help="Which engine.")] = Flavour.CUDA,
    source: Annotated[
        str, typer.Option("--from", help="wheel: repack the release's; source: compile.")
    ] = "wheel",
    arch: Annotated[Arch | None, typer.Option(help="This machine's if absent.")] = None,
    cuda_arch: Annotated[
        str, typer.Option(help="For --from source: TORCH_CUDA_ARCH_LIST.")
    ] = "8.6",
    python: Annotated[
        Path | None, typer.Option(help="For --from source: an interpreter with the pinned torch.")
    ] = None,
) -> None:
    """Build dist/vllm-<version>+rig.N[.cpu]-...whl from the applied tree."""
    layout, pin = _start(version)
    if source == "wheel":
        wheel = built_wheel(layout, pin, flavor, arch)
    elif source == "source":
        from rig.series.apply import apply as apply_series
        from rig.wheel.from_source import build_from_source

        wheel = build_from_source(
            layout,
            apply_series(layout, pin),
            flavor,
            read_revision(layout),
            python or Path(sys.executable),
            architectures=cuda_arch,
        )
    else:
        raise RigError(
            f"FROM is wheel or source, not {source!r}", next_step="make build FROM=wheel"
        )
    from rig.launch.engine_environment import RAY_VERSION

    path = layout.typed(wheel.path)
    out.print(path)
    out.print(f"  sha256 {wheel.sha256}")
    out.print(f"  {len(wheel.patched)} files patched, {wheel.seconds:.1f} s")
    out.print(f"  next: python -m pip install {shlex.quote(path)} 'ray=={RAY_VERSION}'")


def built_wheel(layout: Layout, pin: Pin, flavour: Flavour, arch: Arch | None = None) -> BuiltWheel:
    from rig.series.apply import apply as apply_series
    from rig.wheel.build import build_wheel

    tree = apply_series(layout, pin)
    return build_wheel(layout, tree, flavour, arch or this_arch(), read_revision(layout))


@app.command()
def inspect(
    what: Annotated[list[Path], typer.Argument(help="Wheels, or Pythons of environments.")],
    full: Annotated[
        bool, typer.Option("--full", help="Hash every file, not the patched ones only.")
    ] = False,
) -> None:
    """Say which patches a wheel or an installed vLLM carries, and prove that they are there."""
    for one in what:
        if len(what) > 1:
            out.print(f"{one}:")
        _inspect(one, full)


def _inspect(what: Path, full: bool) -> None:
    from rig.wheel.inspect import describe, inspect_wheel
    from rig.wheel.installed import check_installation

    if what.suffix == ".whl":
        provenance = describe(what)
        inspect_wheel(what, full=full)
    else:
        engine = check_installation(what, full=full)
        out.print(f"{engine.folder}: {engine.checked} files are what they must be")
        provenance = engine.provenance
    out.print(f"version  {provenance.version} ({provenance.flavour})")
    out.print(f"release  vLLM {provenance.release}, commit {provenance.commit}")
    out.print(f"series   {provenance.series}")
    out.print(f"tree     {provenance.tree}")
    for patch in provenance.patches:
        out.print(f"patch    {patch.number} {patch.subject}")


@app.command("check-patches")
def check_patches_command(
    versions: Annotated[list[str] | None, typer.Argument(help="All pins if absent.")] = None,
) -> None:
    """Run vLLM's own ruff and mypy settings on every file that a patch touches."""
    from rig.check_patches import check_patches
    from rig.series.apply import apply as apply_series

    layout = layout_of_this_checkout()
    pins = [find_pin(layout, v) for v in versions] if versions else read_pins(layout)
    for pin in pins:
        out.print(check_patches(apply_series(layout, pin)))


@app.command("clean")
def clean_command() -> None:
    """Remove build/ and dist/, but no tree that holds work of yours."""
    from rig.clean import clean

    clean(layout_of_this_checkout(), out.print)


def main() -> NoReturn:
    """Run a command; a failure that a person can act on is printed, not thrown."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What a terminal cannot show is written as its number, instead of ending the command.
            stream.reconfigure(errors="backslashreplace")
    try:
        # Not standalone: typer shows the words of its validation as they are.
        status = app(prog_name="./rig", standalone_mode=False)
    except UsageError as error:
        if not sys.argv[1:]:  # the help was printed
            sys.exit(error.exit_code)
        path = error.ctx.command_path if error.ctx else "./rig"
        console.print(str(said_of_usage(error.format_message(), path)), markup=False)
        sys.exit(error.exit_code)
    except ClickException as error:
        console.print(str(RigError(error.format_message())), markup=False)
        sys.exit(error.exit_code)
    except typer.Abort as error:  # what typer makes of an EOFError, such as of a cut gzip file
        said = RigError(str(error.__cause__ or "") or "stopped: the input ended")
        console.print(str(said), markup=False)
        sys.exit(1)
    except RigError as error:
        console.print(str(error), markup=False)
        sys.exit(1)
    except BrokenPipeError:  # `./rig pins | head -1`; Python would complain while it flushes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        said = RigError(first_line_of_os_error(error), where=error.filename)
        console.print(str(said), markup=False)
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)
