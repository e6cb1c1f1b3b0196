"""The command that makes a release."""

from __future__ import annotations

from typing import Annotated

import typer

from rig.cli import app
from rig.console import out
from rig.git import require_git
from rig.layout import layout_of_this_checkout
from rig.pins import Arch


@app.command("release")
def release_command(
    wheel: Annotated[
        list[str] | None,
        typer.Option(help="VERSION:FLAVOUR[:ARCH], or all; the primary pin's for CUDA if absent."),
    ] = None,
    arch: Annotated[
        Arch | None, typer.Option(help="This machine's if absent; every one with all.")
    ] = None,
    require_quilt: Annotated[
        bool, typer.Option("--require-quilt", help="Fail when quilt is not installed.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would be; build and prove nothing.")
    ] = False,
) -> None:
    """Make dist/release-<version>: proven wheels, checksums, SBOM, provenance, changelog."""
    from rig.release import command

    require_git()
    layout = layout_of_this_checkout()
    if dry_run:
        point, wanted, notes = command.preview(layout, wheel or [], arch)
        out.print(f"release  {point.version} of commit {point.commit[:12]}")
        out.print(f"tag      {point.tag}, {'there' if point.tagged else 'to be made'}")
        for one in wanted:
            out.print(f"wheel    {one}")
        out.print(f"\n{notes}", end="")
        return
    made = command.release(layout, wheel or [], arch, require_quilt=require_quilt)
    out.print(f"{layout.shown(made.folder)}: of commit {made.point.commit}")
    for name, digest in made.digests.items():
        size = (made.folder / name).stat().st_size
        out.print(f"  {digest}  {name}  {size:,} bytes")
    if made.point.tagged:
        out.print(f"  the tag {made.point.tag} is at this commit")
    else:
        out.print(f"  next: git tag --annotate '{made.point.tag}' {made.point.commit}")
        out.print(f"        git push origin '{made.point.tag}'")
