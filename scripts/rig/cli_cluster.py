"""The commands for more than one box, and the one that asks a server for a real answer."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from rig.cli import app
from rig.console import out

_PASS_ON = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
    "help_option_names": [],
}


@app.command("ray-head", context_settings=_PASS_ON)
def ray_head(context: typer.Context) -> None:
    """Serve a model over two or more boxes; what scripts/ray-head.sh calls."""
    from rig.launch.cluster_command import head_main

    raise typer.Exit(head_main(context.args))


@app.command("ray-join", context_settings=_PASS_ON)
def ray_join(context: typer.Context) -> None:
    """Lend this box's cards to another box's cluster; what scripts/ray-join.sh calls."""
    from rig.launch.cluster_command import join_main

    raise typer.Exit(join_main(context.args))


@app.command()
def health(
    url: Annotated[str, typer.Argument(help="The server's address.")] = "http://127.0.0.1:8000",
    timeout: Annotated[float, typer.Option(help="Seconds for each answer.")] = 60.0,
) -> None:
    """Have a server compute one token with its model; VLLM_API_KEY is its key, if it has one."""
    from rig.launch.supervise_health import real_request

    real_request(url, timeout, os.environ.get("VLLM_API_KEY"))
    out.print(f"healthy: {url} computed a token")
