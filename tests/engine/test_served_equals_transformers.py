"""The served model answers as transformers does, on 1, 2 and 4 ranks; and a fault would show."""

from __future__ import annotations

import json
import shutil
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rig.launch.serve import RunningServer
from rig.rehearsal.client import ask
from rig.rehearsal.compare import LOGPROB_TOLERANCE, compare
from rig.rehearsal.exchange import ANSWER_TOKENS, Answer, Question
from rig.rehearsal.rehearse import check_build, check_ranks, provenance_of_wheel
from rig.rehearsal.stage import SEED, SERVED_NAME, make_model, oracle_answers, reach_of_weights

from .conftest import Stage

pytestmark = pytest.mark.engine


def served(server: RunningServer, question: Question) -> Answer:
    return ask(server.base_url, SERVED_NAME, question)


def test_every_rank_is_a_process_of_its_own(server: RunningServer, ranks: int) -> None:
    check_ranks(server.ranks(), ranks)


def test_the_server_says_which_build_it_is(server: RunningServer, stage: Stage) -> None:
    provenance = provenance_of_wheel(stage.wheel)
    assert "+rig." in provenance.version
    assert check_build(server.base_url, provenance)


def test_tokens_and_logprobs_equal_the_oracles(
    server: RunningServer, stage: Stage, ranks: int
) -> None:
    differences, largest = {}, 0.0
    for name, question in stage.questions.items():
        found = compare(served(server, question), stage.oracle[name])
        assert found.tokens == ANSWER_TOKENS
        largest = max(largest, found.largest_difference)
        if found.difference:
            differences[name] = found.difference
    print(f"TP {ranks}: logprobs differ by {largest:.1e} at most")
    assert not differences


def test_asked_at_once_it_answers_the_same(server: RunningServer, stage: Stage) -> None:
    # Together in one batch, and images from the encoder's cache.
    with ThreadPoolExecutor(len(stage.questions)) as pool:
        answers = pool.map(lambda question: served(server, question), stage.questions.values())
        found = {
            name: compare(answer, stage.oracle[name]).difference
            for name, answer in zip(stage.questions, answers, strict=True)
        }
    assert not any(found.values()), found


@pytest.mark.parametrize(
    ("asked", "other"),
    [("chelsea", "coffee"), ("two images", "two images, swapped")],
)
def test_the_answer_to_another_image_does_not_match(
    server: RunningServer, stage: Stage, asked: str, other: str
) -> None:
    answer = served(server, stage.questions[asked])
    # The prompts are token for token the same: it is the pixels that differ.
    assert answer.prompt_token_ids == stage.oracle[other].prompt_token_ids
    assert not compare(answer, stage.oracle[other]).equal


@pytest.fixture(scope="session")
def altered(stage: Stage) -> Answer:
    """The oracle's answer when one row of one matrix of the tower is lost."""
    folder = stage.folder / "altered"
    shutil.copytree(stage.model, folder)
    lose_row(folder / "model.safetensors", "model.visual.blocks.3.mlp.linear_fc2.weight")
    return oracle_answers(stage.environment, folder, [stage.questions["chelsea"]])[0]


def test_one_lost_row_of_the_tower_does_not_match(
    server: RunningServer, stage: Stage, altered: Answer
) -> None:
    answer = served(server, stage.questions["chelsea"])
    assert compare(answer, stage.oracle["chelsea"]).equal
    assert not compare(answer, altered).equal


def test_a_disturbance_of_any_weight_would_show(stage: Stage) -> None:
    reach = reach_of_weights(stage.environment, stage.model, stage.questions["astronaut"])
    towers = [name for name in reach if ".visual." in name]
    assert len(towers) > 60
    assert len(reach) - len(towers) > 40
    hidden = {name: change for name, change in reach.items() if change < 10 * LOGPROB_TOLERANCE}
    assert not hidden


def test_no_answer_hangs_on_a_near_tie(stage: Stage) -> None:
    margins = {name: answer.margin for name, answer in stage.oracle.items()}
    assert all(margin and margin > 10 * LOGPROB_TOLERANCE for margin in margins.values()), margins


def test_the_same_seed_makes_the_same_bytes(stage: Stage) -> None:
    again = stage.folder / "again"
    assert make_model(stage.environment, again, seed=SEED) == stage.digest
    assert make_model(stage.environment, again, seed=SEED + 1) != stage.digest


def lose_row(path: Path, name: str) -> None:
    """Zero the first row of a float32 matrix in a safetensors file."""
    data = bytearray(path.read_bytes())
    (header_size,) = struct.unpack_from("<Q", data)
    entry = json.loads(data[8 : 8 + header_size])[name]
    assert entry["dtype"] == "F32"
    start = 8 + header_size + entry["data_offsets"][0]
    size = 4 * entry["shape"][1]
    data[start : start + size] = bytes(size)
    path.write_bytes(data)
