"""A whole report: from a made-up launch to one file."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rig.box.facts import Box, Card, Host
from rig.box.pasted import box_of_text
from rig.cli import app
from rig.errors import RigError
from rig.layout import layout_of_this_checkout
from rig.report import sections as made
from rig.report.identity import Identity
from rig.report.sections import Section, Sources, newest_launch, sections, tail_of
from rig.report.write import render, write

_WHEN = datetime(2026, 1, 2, 3, 4)
_ME = Identity(users=("katharina",), homes=("/home/katharina",), hosts=("kat-box",))
_ENGINE = Path(__file__).parents[1] / "engine_log" / "logs" / "two-cards-streamed.txt"


def _script(folder: Path, text: str, status: int = 0) -> tuple[str, ...]:
    program = folder / "dmesg.py"
    program.write_text(f"import sys\nsys.stdout.write({text!r})\nsys.exit({status})\n")
    return (sys.executable, str(program))


def _sources(tmp_path: Path, **more: object) -> Sources:
    logs = tmp_path / "logs"
    launch = logs / "serve-1"
    launch.mkdir(parents=True)
    (launch / "engine.log").write_text(
        _ENGINE.read_text() + "loading from /home/katharina/models at 10.9.8.7\n"
    )
    (launch / "ray.log").write_text("RAY_AUTH_TOKEN=abcdef0123\n")
    return Sources(
        layout=layout_of_this_checkout(),
        environment={"VLLM_API_KEY": "verysecret", "NCCL_DEBUG": "INFO", "EDITOR": "vi"},
        logs=logs,
        dmesg=_script(
            tmp_path,
            "[1] kat-box NVRM: Xid (PCI:0000:09:00): 154, GPU recovery\n[2] usb 1-1: new device\n",
        ),
        **more,  # type: ignore[arg-type]
    )


def test_a_report_holds_the_facts_and_none_of_the_secrets(tmp_path: Path) -> None:
    text, counts = render(sections(_sources(tmp_path)), _ME, when=_WHEN)
    for title in ("Checks", "Versions", "Series", "Environment", "Last launch", "Log ray.log"):
        assert f"## {title}\n" in text
    assert "NCCL_DEBUG=INFO" in text
    assert "VLLM_API_KEY=<token>" in text
    assert "EDITOR" not in text
    assert "KV cache: 378,112 tokens" in text
    assert "loading from ~/models at <ip-" in text
    assert "RAY_AUTH_TOKEN=<token>" in text
    assert "Xid (PCI:0000:09:00): 154" in text
    assert "usb 1-1" not in text
    for gone in ("katharina", "kat-box", "verysecret", "abcdef0123", "10.9.8.7"):
        assert gone not in text
    assert f"token: {counts['token']}" in text
    assert counts["home folder"] >= 1


def test_a_report_can_be_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uuid = "GPU-1f0e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
    card = Card(index=0, bus_id="0000:01:00.0", name="NVIDIA GeForce RTX 3090", uuid=uuid)
    box = Box(source="this machine", cards=(card,), host=Host(driver_version="595.44.02"))
    monkeypatch.setattr(made, "_read_box", lambda: box)
    text, _ = render(sections(_sources(tmp_path)), _ME, when=_WHEN)
    found = box_of_text(text, "a report")
    assert found == box.model_copy(
        update={"source": "a report", "cards": (card.model_copy(update={"uuid": "GPU-1"}),)}
    )


def test_what_cannot_be_had_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ValueError("no such thing")

    monkeypatch.setattr(made, "_read_box", broken)
    sources = Sources(
        layout=layout_of_this_checkout(),
        environment={},
        logs=tmp_path / "none",
        python=str(tmp_path / "no-python"),
        dmesg=_script(tmp_path, "", status=1),
        journal=("/no/such/journal",),
    )
    found = {section.title: section.body for section in sections(sources)}
    assert found["Checks"] == "not available: ValueError: no such thing"
    assert found["Versions"].startswith("not available: error: ")
    assert "no launch has left logs" in found["Last launch"]
    assert found["Kernel messages"].startswith("not readable")
    assert "run as root" in found["Kernel messages"]
    gone = Sources(layout_of_this_checkout(), {}, tmp_path, dmesg=("/no/such/program",))
    gone = replace(gone, journal=_script(tmp_path, ""))
    assert "FileNotFoundError" in list(sections(gone))[-2].body
    assert "it shows nothing" in list(sections(gone))[-2].body
    second = replace(gone, journal=_script(tmp_path, "kernel: NVRM: Xid (PCI:0000:09:00): 31\n"))
    assert list(sections(second))[-2].body == "kernel: NVRM: Xid (PCI:0000:09:00): 31"


def test_a_launch_can_be_named(tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "engine.log").write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    found = {s.title: s.body for s in sections(_sources(tmp_path, log_folder=other))}
    assert "failure: a card ran out of memory" in found["Last launch"]
    assert "Log ray.log" not in found


def test_the_newest_launch_is_the_last_one(tmp_path: Path) -> None:
    for age, name in ((100, "b"), (50, "a"), (200, "c")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1_000_000 - age, 1_000_000 - age))
    assert newest_launch(tmp_path) == tmp_path / "a"
    assert newest_launch(tmp_path / "nothing") is None


def test_a_tail_is_of_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("secret-" * 300_000 + "\nlast\n")
    assert tail_of(log, 5) == "last"
    log.write_text("1\n2\n3\n")
    assert tail_of(log, 2) == "2\n3"
    with pytest.raises(RigError, match="cannot be read"):
        tail_of(tmp_path / "none", 2)


def test_text_cannot_break_out_of_its_block_nor_reach_the_terminal() -> None:
    body = "```\n# not a heading\n````\n\x1b[31mred\x1b]0;title\x07"
    text, _ = render([Section("Log", body)], Identity(), when=_WHEN)
    assert text.count("`````") == 2
    assert "\x1b" not in text and "\x07" not in text
    assert "red" in text


def test_a_long_line_is_cut_after_it_was_redacted() -> None:
    body = "x" * 1990 + " hf_abcdefghijklmnopqrstuvwxyz"
    text, _ = render([Section("Log", body)], Identity(), when=_WHEN)
    assert "hf_" not in text


def test_the_file_is_private_and_new(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    old = os.umask(0)
    try:
        write(path, "text")
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(RigError, match="there already"):
        write(path, "other")
    assert path.read_text() == "text"
    with pytest.raises(RigError, match="cannot be written"):
        write(tmp_path / "no" / "report.md", "text")


def test_the_command_writes_where_it_is_told(tmp_path: Path) -> None:
    import rig.cli_report  # noqa: F401 (adds the command)

    launch = tmp_path / "serve-1"
    launch.mkdir()
    (launch / "engine.log").write_text(_ENGINE.read_text())
    out = tmp_path / "report.md"
    asked = ["report", "--out", str(out), "--log", str(launch), "--python", sys.executable]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.exception
    assert "written" in done.stdout
    assert "Read it through" in done.stdout
    assert "378,112 tokens" in out.read_text()
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    again = CliRunner().invoke(app, asked)
    assert isinstance(again.exception, RigError)
    missing = CliRunner().invoke(app, [*asked[:3], "--log", str(tmp_path / "none")])
    assert isinstance(missing.exception, RigError)
    assert "no such folder of logs" in str(missing.exception)
