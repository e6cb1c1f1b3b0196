"""The command that keeps the pages made from the code, and builds the site."""

from __future__ import annotations

from typing import Annotated

import typer

from rig.cli import app
from rig.console import out
from rig.errors import RigError
from rig.git import require_git
from rig.layout import layout_of_this_checkout


@app.command("docs")
def docs_command(
    write: Annotated[
        bool, typer.Option("--write", help="Renew the tables of patches and pins.")
    ] = False,
    site: Annotated[
        bool, typer.Option("--site", help="Build build/site/ with mkdocs; broken links fail.")
    ] = False,
) -> None:
    """Check that the tables in docs/ are what patches and pins say; 1 if they are not."""
    from rig.docs_tables.pages import PAGES, stale_pages, write_pages

    require_git()
    layout = layout_of_this_checkout()
    if write:
        for name in write_pages(layout) or ["nothing changed"]:
            out.print(name)
    elif stale := stale_pages(layout):
        raise RigError(
            f"not what the code gives: {', '.join(stale)}", next_step="./rig docs --write"
        )
    else:
        out.print(f"{len(PAGES)} pages are what patches and pins say")
    if site:
        from rig.docs_tables.site import build_site

        out.print(layout.shown(build_site(layout)))
