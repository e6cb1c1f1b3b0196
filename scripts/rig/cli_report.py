"""The command that writes a report for others to read."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from rig.cli import app
from rig.console import out
from rig.errors import RigError
from rig.layout import layout_of_this_checkout


@app.command("report")
def report_command(
    file: Annotated[
        Path | None, typer.Option("--out", help="The file to write; a new one here if absent.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="A launch's folder of logs; the last launch's if absent.")
    ] = None,
    rig: Annotated[
        str | None, typer.Option(help="Judge the box against a rig file: a name, path or auto.")
    ] = None,
    python: Annotated[
        str | None, typer.Option(help="The engine's interpreter; as `serve` chooses it if absent.")
    ] = None,
) -> None:
    """Write one file on this box and its last launch, redacted, fit for a bug report."""
    import platformdirs

    from rig.report.identity import identity_of_this_process
    from rig.report.sections import Sources, sections
    from rig.report.write import describe, render, write

    if log is not None and not log.is_dir():
        raise RigError(
            "there is no such folder of logs", where=log, next_step="`serve` prints its folder"
        )
    now = datetime.now()
    path = file or Path(f"rig-report-{now:%Y%m%d-%H%M%S}.md")
    sources = Sources(
        layout=layout_of_this_checkout(),
        environment=os.environ,
        logs=Path(platformdirs.user_log_dir("vllm-rig", appauthor=False)),
        log_folder=log,
        python=python,
        rig=rig,
    )
    text, counts = render(sections(sources), identity_of_this_process(), when=now)
    write(path, text)
    out.print(f"written  {path}")
    out.print(f"  {describe(counts)}")
