"""The line that says why, in logs shaped like vLLM's."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.launch.logs import Follower, make_log_folder, spoken, store_ports, why_it_ended

CORE = "(EngineCore pid=7) ERROR 11-29 16:00:00 [core.py:1100] "


@pytest.mark.parametrize(
    "line, said",
    [
        (CORE + "ValueError: no room", "ValueError: no room"),
        (
            "\x1b[36m(RayWorkerProc pid=9)\x1b[0m (Worker pid=9) INFO 11-29 16:10:29 [x.py:1] Hi",
            "Hi",
        ),
        ("[rank0]: OSError: disk", "OSError: disk"),
        ("plain", "plain"),
    ],
)
def test_who_spoke_when_is_taken_off(line: str, said: str) -> None:
    assert spoken(line) == said


@pytest.mark.parametrize(
    "text, cause",
    [
        ("usage: vllm\nvllm: error: unrecognized arguments: --bad\n", "--bad"),
        (
            f"{CORE}ValueError: no room\n"
            "(APIServer pid=1) RuntimeError: Engine core initialization failed. See above\n",
            "ValueError: no room",
        ),
        ("RuntimeError: Engine core initialization failed.", "Engine core initialization failed"),
        (f"{CORE}torch.OutOfMemoryError: CUDA out of memory.\n", "torch.OutOfMemoryError: CUDA"),
        (f"{CORE}ray.exceptions.RayActorError: the actor died\n", "RayActorError"),
        ("[state-dump] \tgrpc_server.req.failed - 0, error: 3 total\nall is well\n", ""),
        ("x.py:1: FutureWarning: old\nall is well\n", ""),
    ],
)
def test_the_cause_not_its_consequence(tmp_path: Path, text: str, cause: str) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    found, last, _ = why_it_ended(log)
    assert cause in found if cause else found == ""
    assert last == text.rstrip("\n")


def test_no_log_is_no_cause(tmp_path: Path) -> None:
    assert why_it_ended(tmp_path / "none") == ("", "", None)


def test_the_meeting_point_of_the_ranks(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("rank=0 distributed_init_method=tcp://127.0.0.1:35627 backend=gloo\n" * 2)
    assert store_ports(log) == {35627}


def test_a_growing_log_is_followed_by_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    follower = Follower(log)
    assert list(follower.new_lines()) == []
    with log.open("w") as file:
        file.write("one\ntw")
        file.flush()
        assert list(follower.new_lines()) == ["one"]
        file.write("o\n")
        file.flush()
        assert list(follower.new_lines()) == ["two"]
    assert list(follower.new_lines()) == []


def test_a_cause_that_is_known_brings_what_to_do(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("vllm: error: unrecognized arguments: --no-such-thing\n")
    ending = why_it_ended(log)
    assert "no such argument: --no-such-thing" in ending.cause
    assert "unrecognized arguments" in ending.cause  # the engine's own words stay
    assert "vllm serve --help" in str(ending.next_step)
    log.write_text("ValueError: nobody has met this one\n")
    assert why_it_ended(log).cause == "ValueError: nobody has met this one"


RAY_LOST_A_PART = """\
2026-11-30 02:55:10,872\tINFO scripts.py:1274 -- Process exit logs will be saved to: /tmp/x
2026-11-30 02:55:52,905\tERR scripts.py:1307 -- Some Ray subprocesses exited unexpectedly:
2026-11-30 02:55:52,906\tERR scripts.py:87 -- raylet [exit code={code}]
2026-11-30 02:55:52,906\tERR scripts.py:115 -- ----- BEGIN raylet.out tail -----
2026-11-30 02:55:52,906\tERR scripts.py:122 -- [2026-11-30 02:55:08,750 I 5319 5319] chatter
2026-11-30 02:55:52,907\tERR scripts.py:128 -- ----- END raylet.out tail -----
2026-11-30 02:55:52,907\tERR scripts.py:1315 -- Remaining processes will be killed.
"""


@pytest.mark.parametrize(
    "code, said",
    [(-9, "Ray's raylet was killed by signal 9"), (3, "Ray's raylet ended with code 3")],
)
def test_the_part_of_ray_that_ended_is_named(tmp_path: Path, code: int, said: str) -> None:
    log = tmp_path / "ray.log"
    log.write_text(RAY_LOST_A_PART.format(code=code))
    ending = why_it_ended(log)
    assert ending.cause == said
    assert ending.last.splitlines()[-1].endswith(f"raylet [exit code={code}]")
    assert ("dmesg" in str(ending.next_step)) == (code == -9)


def test_a_new_log_folder_is_its_user_s_alone(tmp_path: Path) -> None:
    make_log_folder(tmp_path / "logs" / "serve-1")
    assert (tmp_path / "logs" / "serve-1").stat().st_mode & 0o777 == 0o700
