"""The real check with torch and gloo on the CPU: what is right passes, each fault is found and
named. What only cards can show (NCCL, CUDA, vLLM's own ways) is not shown here."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from rig.box.facts import Box
from rig.p2p.cases import KIB, MIB, Case
from rig.p2p.run import Conditions, run_case
from rig.p2p.verdict import Result, Way

from .conftest import a_box

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

SIZES = (4 * KIB, 64 * KIB)
SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def nothing_missing(box: Box) -> dict[int, str]:
    return {}


def check(
    python: Path,
    way: Way,
    fault: str = "",
    ranks: int = 2,
    sizes: tuple[int, ...] = SIZES,
    silent_s: float = 60.0,
) -> list[Result]:
    cards = tuple(range(2 if way.startswith("copy") else ranks))
    conditions = Conditions(
        python,
        device="cpu",
        iterations=4,
        silent_s=silent_s,
        fault=fault,
        missing=nothing_missing,
    )
    return run_case(Case(way, cards, sizes), a_box(ranks), conditions)[0]


@pytest.mark.parametrize("way", ["copy", "copy-both-ways", "nccl-no-p2p"])
def test_right_data_passes(way: Way, engine_python: Path) -> None:
    results = check(engine_python, way, sizes=(4 * KIB, MIB, 16 * MIB))
    assert [r.outcome for r in results] == ["passed"] * 3, results
    assert all(r.gb_per_s is not None and r.gb_per_s > 0 for r in results)


def test_three_ranks(engine_python: Path) -> None:
    assert [r.outcome for r in check(engine_python, "nccl-p2p", ranks=3)] == ["passed"] * 2


@pytest.mark.parametrize(
    ("way", "fault", "said"),
    [
        ("copy", "wrong", "1 of 1024 values are wrong, the first at 512"),
        ("copy", "zeros", "zeros"),
        ("copy", "stale", "stale, from the copy before"),
        ("copy", "short", "256 of 1024 values are wrong, the first at 768: never written"),
        ("copy", "shifted", "shifted by 1 values"),
        ("copy", "swapped", "data of the other direction"),
        ("copy", "overrun", "memory beside the target was written"),
        ("copy-both-ways", "stale:iteration=3", "stale"),
        ("nccl-p2p", "wrong:rank=1", "rank 1 (card 1): 1 of 1024 values are wrong"),
        ("nccl-p2p", "stale:rank=1", "rank 1 (card 1): 1024 of 1024 values are wrong, the first "),
        ("nccl-p2p", "short:rank=0", "only what this rank gave itself"),
        ("nccl-p2p", "shifted:rank=0", "shifted by 1 values"),
    ],
)
def test_bad_data_is_wrong_and_named(way: Way, fault: str, said: str, engine_python: Path) -> None:
    bad, good = check(engine_python, way, f"{fault}:size=4096")
    assert (bad.outcome, good.outcome) == ("wrong", "passed")
    assert said in bad.detail
    if "rank=1" in fault:
        assert "rank 0" not in bad.detail


@pytest.mark.parametrize(
    ("way", "fault", "outcome", "said"),
    [
        ("copy", "hang", "hang", "rank 0: silent for"),
        ("nccl-p2p", "hang:rank=1", "hang", "rank 0, rank 1: silent for"),
        ("nccl-p2p", "deaf:rank=0", "hang", "killed"),
        ("copy", "crash", "crash", "SIGSEGV"),
        ("nccl-p2p", "crash:rank=1:iteration=2", "crash", "rank 1 ended by SIGSEGV"),
        ("nccl-p2p", "exit:rank=0", "failed", "rank 0"),
        ("copy", "error", "failed", "RuntimeError: a fault was asked for"),
    ],
)
def test_a_bad_end_is_a_result(
    way: Way, fault: str, outcome: str, said: str, engine_python: Path
) -> None:
    silent_s = 10.0 if outcome == "hang" else 60.0
    good, bad = check(engine_python, way, f"{fault}:size=65536", silent_s=silent_s)
    assert (good.outcome, bad.outcome) == ("passed", outcome), bad
    assert said in bad.detail


def test_litter_is_removed(engine_python: Path) -> None:
    def here() -> set[str]:
        return {p.name for p in Path("/dev/shm").iterdir() if p.lstat().st_uid == os.getuid()}

    # Other tests and servers of this user come and go: only what stays for good counts.
    before = here()
    (bad, _) = check(engine_python, "copy", "litter", silent_s=10.0)
    assert bad.outcome == "hang"
    left = {name for name in here() - before if name.startswith("psm_")}
    assert not {name for name in left if Path("/dev/shm", name).stat().st_size == 4096}


def test_vllms_ways_are_refused_without_cards(engine_python: Path) -> None:
    results = check(engine_python, "custom")
    assert [r.outcome for r in results] == ["failed"] * 2
    assert results[0].detail == "it needs cards"


_PATTERNS = """
import json, pathlib, sys, torch
from p2p_check.pattern import diagnose, salt, summands, words
from p2p_check.transports import nccl_transports

def reference(position, salt):
    def signed(x): return (x + 2**31) % 2**32 - 2**31
    x = signed(signed(position * -1640531535) + salt)
    x = x ^ (x % 2**32 >> 15)
    x = signed(x * -2048144777)
    return x ^ (x % 2**32 >> 13)

for s in (0, 1, -5, salt("a", 1)):
    assert words(1000, s, "cpu").tolist() == [reference(i, s) for i in range(1000)]
w = words(1 << 20, salt("a"), "cpu")
assert w.unique().numel() == w.numel(), "values repeat"
assert (w == words(1 << 20, salt("b"), "cpu")).float().mean() < 1e-4
for shift in (1, 2, 4, 1024):
    assert (w[shift:] == w[:-shift]).float().mean() < 1e-4
for dtype in (torch.float32, torch.float16):
    parts = [summands(4096, salt(r), "cpu", dtype) for r in range(16)]
    exact = sum(p.to(torch.float64) for p in parts)
    total = torch.zeros(4096, dtype=dtype)
    for p in reversed(parts):
        total += p.to(dtype)
    assert torch.equal(total.to(torch.float64), exact)
    assert parts[0].unique().numel() > 100
want = words(5000, 1, "cpu")
assert diagnose(want.clone(), want, {}) == ""
assert diagnose(torch.zeros_like(want), want, {}).endswith("zeros")
assert diagnose(want.roll(7), want, {}).endswith("shifted by 7 values")
assert diagnose(want.roll(-3), want, {}).endswith("shifted by -3 values")
other = words(5000, 2, "cpu")
assert diagnose(other, want, {"none": want, "another": other}).endswith("another")
half = want.clone(); half[100:] = other[100:]
assert diagnose(half, want, {"another": other}) == (
    "4900 of 5000 values are wrong, the first at 100: another")
assert "got" in diagnose(words(5000, 3, "cpu"), want, {"another": other})
folder = pathlib.Path(sys.argv[1])
line = "box:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via "
(folder / "nccl.1").write_text(line + "P2P/CUMEM\\n")
(folder / "nccl.2").write_text(line + "SHM/direct/direct\\n")
assert nccl_transports(folder) == ["P2P/CUMEM", "SHM/direct/direct"]
print(json.dumps("all good"))
"""


def test_the_pattern_and_its_diagnosis(engine_python: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(engine_python), "-c", _PATTERNS, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(SCRIPTS), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == "all good"
