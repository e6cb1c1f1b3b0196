"""A tower that streams, through all that happens to an engine between its start and its end.

One process of the engine runs all cases, since its start takes longest; see
in_the_engine/tower_life_cycle.py for what each of them does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .conftest import Stage

pytestmark = pytest.mark.engine

IN_THE_ENGINE = Path(__file__).parent / "in_the_engine"
SHARED_MEMORY = Path("/dev/shm")
TOWERS = "/memfd:vllm-tower"  # files that have no name in any folder
BLOCKS, LINEARS = 4, 4  # of the tower: those of its merger are linears, and of two deepstack ones
STEM = 2  # modules of it at least: the patch embedding and the position table
ANSWERS = 3  # images whose encodes are compared

Facts = dict[str, Any]


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@pytest.fixture(scope="module")
def found(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Facts]:
    """Case -> what was found."""
    script = IN_THE_ENGINE / "tower_life_cycle.py"
    folder = tmp_path_factory.mktemp("life cycle")
    done = subprocess.run(
        [str(stage.environment.python), "-P", str(script), str(stage.model), str(folder)],
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=500,
        check=False,
    )
    (folder / "log").write_text(done.stdout + done.stderr)
    assert done.returncode == 0, done.stderr[-4000:]
    cases: dict[str, Facts] = json.loads(done.stdout.splitlines()[-1])
    return cases


def facts_of(found: dict[str, Facts], case: str) -> Facts:
    facts = found[case]
    assert "error" not in facts, facts["error"]
    return facts


@pytest.mark.parametrize(
    ("residents", "units"),
    [("all stream", range(BLOCKS + LINEARS, 99)), ("some are resident", range(1, 8))],
)
def test_reloaded_weights_are_those_of_a_fresh_engine(
    found: dict[str, Facts], residents: str, units: range
) -> None:
    facts = facts_of(found, "reload")[residents]
    assert facts["units"] in units
    assert facts["changed"]
    assert facts["right"] == [True, True]
    assert facts["right_answer"]
    assert facts["right_again"]


def test_a_reload_that_nobody_notices_leaves_the_ring_stale(found: dict[str, Facts]) -> None:
    facts = facts_of(found, "reload")
    assert not facts["right_without_notice"]
    assert facts["right_after_notice"]


@pytest.mark.parametrize(
    ("how", "right"),
    [
        ("before", True),
        ("only noted", True),
        ("announced and noted", True),
        ("without a word", False),
    ],
)
def test_an_update_in_place_counts_once_it_is_noted(
    found: dict[str, Facts], how: str, right: bool
) -> None:
    facts = facts_of(found, "update_in_place")
    assert facts["differ"]
    assert facts[how] == right


@pytest.mark.parametrize("case", ["dummy_weights", "quantised_tower"])
def test_streamed_encodes_are_the_resident_ones(found: dict[str, Facts], case: str) -> None:
    facts = facts_of(found, case)
    assert sum(facts["units"]) >= BLOCKS
    assert facts["equal"] == [True] * ANSWERS
    assert facts["same_answer"]
    assert facts["differ"]
    assert facts["entries"] > ANSWERS * BLOCKS


def test_the_quantised_towers_weights_were_replaced(found: dict[str, Facts]) -> None:
    facts = facts_of(found, "quantised_tower")
    assert facts["dtype"] == "torch.float8_e4m3fn"
    assert not facts["contiguous"]


def test_sharded_state_is_saved_and_loaded_as_without_streaming(found: dict[str, Facts]) -> None:
    facts = facts_of(found, "sharded_state")
    assert facts["names"] and facts["values"]
    assert facts["of_tower"] > 8 * BLOCKS
    assert facts["right"] == [True] * 3


def test_a_tower_of_the_transformers_backend_streams(found: dict[str, Facts]) -> None:
    facts = facts_of(found, "transformers_backend")
    assert facts["class"].startswith("Transformers")
    assert facts["same_answer"] == [True, True]
    assert facts["meta"] == 0
    assert sum(facts["units"]) >= BLOCKS
    assert sum(tower["entries"] for tower in facts["counters"].values()) >= 2 * BLOCKS


def test_post_init_again_changes_nothing(found: dict[str, Facts]) -> None:
    facts = facts_of(found, "post_init_twice")
    assert facts["same_tower"]
    before, after, units, of_the_stem = facts["hooked"]
    assert before == after == units + of_the_stem
    assert of_the_stem >= STEM
    assert facts["right"]


def test_two_engines_in_one_process_stream_apart(found: dict[str, Facts]) -> None:
    facts = facts_of(found, "two_engines")
    assert facts["differ"]
    assert facts["beside"] == [True, True]
    assert facts["second_after_it"]


def test_an_engines_reload_reaches_its_own_towers(found: dict[str, Facts]) -> None:
    facts = facts_of(found, "two_engines")
    assert facts["reload_of_the_first"]
    assert facts["reload_beside_one_without_flag"]


def test_an_engine_without_the_flag_has_nothing_of_the_one_before(
    found: dict[str, Facts],
) -> None:
    facts = facts_of(found, "two_engines")
    assert facts["hooked_without_flag"] == 0
    assert facts["offloader_without_flag"]
    assert facts["right_without_flag"]
    assert facts["counters_without_flag"] == {}


def test_of_an_engine_that_ended_the_next_one_keeps_nothing(found: dict[str, Facts]) -> None:
    assert facts_of(found, "end_of_an_engine")["tower_is_gone"]


@pytest.mark.parametrize(
    "inside", ["blocks.0.mlp", "blocks.2.attn", "blocks.3.norm2", "merger.norm"]
)
def test_an_encode_that_fails_says_so_and_leaves_the_next_one_right(
    found: dict[str, Facts], inside: str
) -> None:
    facts = facts_of(found, "failing_encode")
    assert facts[inside] == {"said": "a bad image", "at_rest": True, "right": [True, True]}
    assert facts["right_answer"]


def test_lora_on_the_tower_answers_as_without_streaming(found: dict[str, Facts]) -> None:
    facts = facts_of(found, "lora_on_the_tower")
    assert facts["wrapped"] >= 4 * BLOCKS
    assert sum(facts["units"]) >= BLOCKS
    assert facts["differ"]
    assert facts["same_plain"] and facts["same_lora"] and facts["same_plain_again"]
    assert facts["entries"] >= 3 * BLOCKS


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("no slots", ["offload_tower_slots", "greater than or equal to 1"]),
        ("negative slots", ["offload_tower_slots", "greater than or equal to 1"]),
        ("negative budget", ["offload_tower_resident_gb", "greater than or equal to 0"]),
        ("slots without towers", ["offload_tower_slots", "--offload-towers"]),
        ("text only", ["no tower to stream", "Remove --offload-towers"]),
        ("uva backend", ["offload_backend='uva'", "--offload-backend=auto"]),
        ("more slots than units", ["streams nothing", "--offload-tower-slots"]),
        ("nothing but prefetch", ["--offload-group-size", "--offload-towers"]),
        ("compiled encoder", ["compile_mm_encoder"]),
        ("no host memory", ["--offload-towers", "cannot map", "bytes"]),
    ],
)
def test_bad_input_is_refused_in_words_that_say_what_to_do(
    found: dict[str, Facts], what: str, words: list[str]
) -> None:
    said = facts_of(found, "bad_input")[what]
    assert said, "it was accepted"
    for word in words:
        assert word in said


def test_a_budget_above_the_tower_leaves_all_of_it_resident(found: dict[str, Facts]) -> None:
    assert facts_of(found, "all_resident") == {
        "streamers": 0,
        "hooked": 0,
        "counters": {},
        "changed": True,
    }


def test_with_all_modalities_off_text_is_served_and_nothing_streams(
    found: dict[str, Facts],
) -> None:
    assert facts_of(found, "all_modalities_off") == {
        "streamers": 0,
        "hooked": 0,
        "same_answer": True,
    }


# A rank that is killed.


def descendants(pid: int) -> set[int]:
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
        except OSError:
            continue
        parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def mapped(pid: int, start: str) -> set[str]:
    """The files that a process maps whose paths begin so."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return set()
    paths = (line.split(maxsplit=5)[5] for line in lines if line.count(" ") > 5 and "/" in line)
    return {path for path in paths if path.startswith(start)}


@dataclass(frozen=True)
class Ranks:
    """An engine of two ranks that has answered.

    Args:
        files: process -> the files of the streamer that it maps.
        of_vllm: vLLM's own files in /dev/shm, which stay there when a rank is killed.
    """

    process: subprocess.Popen[str]
    files: dict[int, set[str]]
    of_vllm: set[Path]


@contextmanager
def two_ranks(stage: Stage, log: Path) -> Iterator[Ranks]:
    """Two ranks of one node; whatever becomes of them, no process and no file is left."""
    script = IN_THE_ENGINE / "two_ranks.py"
    ours: set[int] = set()
    of_vllm: set[Path] = set()
    with log.open("w") as errors:
        process = subprocess.Popen(
            [str(stage.environment.python), "-P", str(script), str(stage.model)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=clean_environment(),
            start_new_session=True,
        )
        try:
            assert process.stdout
            assert any(line.strip() == "ready" for line in process.stdout), log.read_text()
            ours = descendants(process.pid)
            of_vllm = {Path(path) for pid in ours for path in mapped(pid, f"{SHARED_MEMORY}/")}
            yield Ranks(process, {pid: mapped(pid, TOWERS) for pid in ours}, of_vllm)
        finally:
            if process.poll() is None:
                ours |= descendants(process.pid)
            for pid in alive(ours):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait(30)
            for path in of_vllm:
                path.unlink(missing_ok=True)


@pytest.mark.full
def test_a_rank_that_is_killed_leaves_nothing_of_its_tower(stage: Stage, tmp_path: Path) -> None:
    before = set(SHARED_MEMORY.iterdir())
    log = tmp_path / "log"
    with two_ranks(stage, log) as ranks:
        sharing = sorted(pid for pid, files in ranks.files.items() if files)
        assert len(sharing) == 2, log.read_text()[-4000:]
        one, other = (ranks.files[pid] for pid in sharing)
        assert one == other
        os.kill(sharing[0], signal.SIGKILL)
        ranks.process.wait(120)
        until = time.monotonic() + 30
        while (left := alive(set(ranks.files))) and time.monotonic() < until:
            time.sleep(0.2)
        assert not left
    everyone = {int(folder.name) for folder in Path("/proc").glob("[0-9]*")}
    assert not [pid for pid in everyone if mapped(pid, TOWERS) & one]
    new = set(SHARED_MEMORY.iterdir()) - before
    assert not [path for path in new if "tower" in path.name]


def alive(pids: set[int]) -> set[int]:
    found = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.add(pid)
    return found
