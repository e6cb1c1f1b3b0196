"""The printed script, really run by bash: nothing in it is code but ours, and it cleans up."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rig.box.rig_file import DefaultsTable
from rig.launch.decide import Known
from rig.launch.dry_run import as_shell_script, comment, quote, shown
from rig.launch.plan import Executor, ServeOptions, plan_serve
from rig.launch.processes import marked

from .checks import alive
from .rules.row import rig

HOSTILE = [
    "x\ntouch F #",
    "x\rtouch F #",
    "x$RIG_RUN$(touch F)",
    "x$RIG_RUN\n$(touch F)`touch F`",
    'x$RIG_PORT"; touch F; "',
    "x'; touch F; '$PATH'; touch F; '",
    "x\u2028touch F",
]


def run(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "TMPDIR": str(folder), **environment},
    )


def options_for(folder: Path, executor: Executor) -> ServeOptions:
    """Of an environment without programs, so that nothing starts."""
    return ServeOptions(
        model="m", python=folder / "none" / "python", log_folder=folder / "l", executor=executor
    )


@pytest.mark.parametrize("executor", ["ray", "mp"])
@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_the_user_says_is_run(tmp_path: Path, text: str, executor: Executor) -> None:
    plain = options_for(tmp_path, executor)
    python = Path(f"/none/{text.replace('$RIG_', '$RIC_').replace('$PATH', '')}/bin/python")
    cases = [
        plan_serve(replace(plain, model=text), {}),
        plan_serve(replace(plain, host=text), {}),
        plan_serve(replace(plain, extra_arguments=("--host", text, "--seed", text)), {}),
        plan_serve(replace(plain, python=python), {}),
        plan_serve(plain, {"NCCL_P2P_DISABLE": text, "VLLM_HOST_IP": text, f"RAY_{text}": "1"}),
    ]
    for plan in cases:
        done = run(as_shell_script(plan), tmp_path)
        assert not (tmp_path / "F").exists(), as_shell_script(plan)
        assert done.returncode != 0
        assert "syntax error" not in done.stderr


@pytest.mark.parametrize("text", HOSTILE)
def test_a_word_comes_through_with_only_its_markers_replaced(tmp_path: Path, text: str) -> None:
    said = run(
        f"printf %s {quote(text)}", tmp_path, RIG_RUN="/r", RIG_PORT="5", PATH="/bin:/usr/bin"
    )
    wanted = text.replace("$RIG_RUN", "/r").replace("$RIG_PORT", "5")
    assert said.stdout == wanted.replace("$PATH", "/bin:/usr/bin").replace("\r", "\n")
    assert quote("$RIG_RUNNER") == "'$RIG_RUNNER'"
    assert quote("") == "''"


def test_secrets_are_not_printed_and_whoever_runs_it_gives_them(tmp_path: Path) -> None:
    extra = ("--api-key", "S3CRET", "S3CRET2", "--seed", "1", "--hf-token=S3CRET3")
    mine = rig(defaults=DefaultsTable(arguments=("--api_key=S3CRET4",)))
    for said in (extra, ()):
        plan = plan_serve(
            replace(options_for(tmp_path, "mp"), extra_arguments=said),
            {"HF_TOKEN": "S3CRET5", "VLLM_API_KEY": "S3CRET6"},
            Known(rig=mine),
        )
        script = as_shell_script(plan)
        assert "S3CRET" not in script
        assert "API_KEY: is a secret" in run(script, tmp_path).stderr
    words = run(
        f"printf '%s ' {' '.join(shown(extra))}", tmp_path, API_KEY="a", API_KEY_="b", HF_TOKEN="c"
    )
    assert words.stdout == "--api-key a b --seed 1 --hf-token=c "


def test_a_comment_is_one_line_without_terminal_codes() -> None:
    assert comment("a\nb\r\x0bc\u2028d\x1b[2J") == "# a b c d?[2J"


def test_the_script_ends_when_ray_does_not_start(tmp_path: Path) -> None:
    script = as_shell_script(plan_serve(options_for(tmp_path, "ray"), {}))
    assert script.startswith("#!/usr/bin/env bash\n")
    assert "/dev/shm" in script
    done = run(f"{script}\n", tmp_path)
    assert done.returncode == 1
    assert "Ray ended" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_script_takes_all_with_it(
    options: ServeOptions, seen: Path, tmp_path: Path, number: signal.Signals
) -> None:
    script = tmp_path / "script"
    script.write_text(as_shell_script(plan_serve(options)) + "echo not reached\n")
    folder = tmp_path / "run folder"
    where = script.read_text().replace(
        "mktemp -d /tmp/vllm-rig-XXXXXX", f"mkdir '{folder}' && echo '{folder}'"
    )
    script.write_text(where)
    shell = subprocess.Popen(["bash", script], start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while not (seen / "vllm.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        children = [p.pid for p in marked("FAKE_SEEN", str(seen)) if p.parent == shell.pid]
        shell.send_signal(number)
        assert shell.wait(15) == 128 + number
        assert len(children) == 2 and not [pid for pid in children if alive(pid)]
        assert not folder.exists()
    finally:
        for process in marked("FAKE_SEEN", str(seen)):  # the fakes' daemons
            os.kill(process.pid, signal.SIGKILL)
