"""How `./rig` ends: its exit status, and that no failure is silent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import typer

from rig import cli
from rig.errors import RigError


def _raises(error: BaseException) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (typer.Exit(0), 0, ""),
        (typer.Exit(3), 3, ""),
        (KeyboardInterrupt(), 130, ""),
        (SystemExit(4), 4, ""),
        (BrokenPipeError(32, "Broken pipe"), 1, ""),
        (RigError("it is gone", next_step="look"), 1, "error: it is gone\n  next:  look"),
        (PermissionError(13, "Permission denied", "a/b"), 1, "where: a/b"),
        # What gzip and pickle raise for a file that was cut short; typer makes an Abort of it.
        (EOFError("ended before the end-of-stream marker"), 1, "error: ended before the end-of"),
        (typer.Abort(), 1, "error: stopped"),
    ],
)
def test_how_a_command_ends(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    status: int,
    said: str,
) -> None:
    app = typer.Typer()
    app.command()(_raises(error))
    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr("sys.argv", ["rig"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == status
    shown = capsys.readouterr().err
    assert said in shown if said else "error" not in shown
