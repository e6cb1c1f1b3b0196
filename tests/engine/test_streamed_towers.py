"""A server whose tower streams answers as the oracle does, whatever comes in between.

It is served without its caches of images and prefixes: each request with an image runs the tower.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from rig.errors import RigError
from rig.launch.plan import Executor
from rig.launch.serve import RunningServer
from rig.rehearsal.client import ask
from rig.rehearsal.compare import LOGPROB_TOLERANCE, compare
from rig.rehearsal.exchange import ANSWER_TOKENS, Answer, Question
from rig.rehearsal.rehearse import OFFLOAD_TOWERS, served_without_trace
from rig.rehearsal.stage import SERVED_NAME, oracle_answers, serve_options
from rig.rehearsal.streaming import check_streaming, streaming_lines

from .conftest import WHAT, Stage

pytestmark = pytest.mark.engine

# Fewer than the tower's four blocks: each pass must bring blocks in that the ring has not.
SLOTS = 3
BLOCKS = 4
CLIENTS = 10
IN_THE_WORKER = Path(__file__).parent / "in_the_worker"


@dataclass(frozen=True)
class Streamed:
    """A server whose tower streams.

    Args:
        mode: how ranks share the tower: `weights` splits each layer, `data` the images.
        right: what is asked of it, and the oracle's answer; by name.
    """

    server: RunningServer
    ranks: int
    mode: str
    right: dict[str, tuple[Question, Answer]]

    def wrong(self, names: Sequence[str]) -> dict[str, str]:
        """Ask one after the other; name -> what is wrong with the answer."""
        return {name: wrong for name in names if (wrong := self.wrong_answer(name))}

    def wrong_answer(self, name: str) -> str | None:
        question, right = self.right[name]
        found = compare(ask(self.server.base_url, SERVED_NAME, question), right)
        assert found.tokens == ANSWER_TOKENS
        return found.difference

    def counted(self, what: str) -> list[int]:
        """How often the tower ran (`passes`) or failed (`faults`), by rank."""
        return [rank[what] for rank in on_each_rank(self.server, "watch_tower")]

    def streamed_bytes(self) -> list[float]:
        """What has been copied into the ring since the start, by rank."""
        counters = on_each_rank(self.server, "get_tower_offload_counters")
        return [rank["visual"]["bytes_copied"] for rank in counters]

    def fail_once(self, inside: str, then: str = "again") -> None:
        on_each_rank(self.server, "fail_tower_once", inside, then)


def on_each_rank(server: RunningServer, method: str, *arguments: str) -> list[Any]:
    """Call a method of in_the_worker/ on every rank; what it returned there, in order of ranks."""
    with requests.Session() as session:
        session.trust_env = False
        reply = session.post(
            f"{server.base_url}/collective_rpc",
            json={"method": method, "args": arguments},
            timeout=120,
        )
    assert reply.status_code == 200, reply.text
    results: list[Any] = reply.json()["results"]
    return results


@pytest.fixture(scope="module")
def right(stage: Stage) -> dict[str, tuple[Question, Answer]]:
    """The stage's questions, and one with more images than ranks, of different sizes."""
    sizes = [(64, 64), (256, 128), (96, 192), (256, 256), (128, 96)]
    images = tuple(noise(*size, seed) for seed, size in enumerate(sizes))
    five = Question(WHAT, images)
    answer = oracle_answers(stage.environment, stage.model, [five])[0]
    assert answer.margin and answer.margin > 10 * LOGPROB_TOLERANCE, "a near-tie proves nothing"
    known = {name: (asked, stage.oracle[name]) for name, asked in stage.questions.items()}
    return known | {"five images": (five, answer)}


@contextmanager
def served_streamed(
    stage: Stage, ranks: int, mode: str, executor: Executor = "ray"
) -> Iterator[RunningServer]:
    more = (
        *(OFFLOAD_TOWERS, "--offload-tower-slots", str(SLOTS)),
        *("--mm-encoder-tp-mode", mode),
        *("--mm-processor-cache-gb", "0", "--no-enable-prefix-caching"),
        *("--worker-extension-cls", "tower_faults.TowerFaults"),
    )
    logs = stage.folder / f"logs streamed {ranks} {mode} {executor}"
    options = serve_options(
        stage.environment, stage.model, logs, ranks=ranks, executor=executor, more=more
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(IN_THE_WORKER))
        patch.setenv("VLLM_SERVER_DEV_MODE", "1")  # it has /collective_rpc
        with served_without_trace(stage.environment, options) as server:
            yield server


def case(ranks: int, mode: str, *marks: pytest.MarkDecorator) -> Any:
    return pytest.param((ranks, mode), id=f"TP{ranks}-{mode}", marks=marks)


@pytest.fixture(
    scope="module",
    params=[
        case(2, "weights"),
        case(4, "data"),
        case(1, "weights", pytest.mark.full),
        case(2, "data", pytest.mark.full),
        case(4, "weights", pytest.mark.full),
    ],
)
def streamed(
    request: pytest.FixtureRequest, stage: Stage, right: dict[str, tuple[Question, Answer]]
) -> Iterator[Streamed]:
    ranks, mode = request.param
    with served_streamed(stage, ranks, mode) as server:
        on_each_rank(server, "watch_tower")
        yield Streamed(server, ranks, mode, right)


def test_the_log_names_the_tower_that_streams(streamed: Streamed) -> None:
    towers = check_streaming(streamed.server.engine_log, wanted=True)
    assert {tower.name for tower in towers} == {"visual"}
    assert all(tower.units >= BLOCKS for tower in towers)


def test_without_the_flag_no_tower_streams(server: RunningServer) -> None:
    assert streaming_lines(server.engine_log) == ()


def test_each_blocks_weights_rest_in_one_buffer(streamed: Streamed) -> None:
    for rank in on_each_rank(streamed.server, "storages_of_tower"):
        assert len(rank) == BLOCKS
        for parameters, pieces in rank.values():
            assert parameters > 8
            assert pieces == 1


def test_ranks_rest_one_copy_of_what_is_equal(streamed: Streamed) -> None:
    """In data mode each rank needs the whole tower, and one copy of it serves the machine."""
    log = streamed.server.engine_log
    (tower,) = check_streaming(log, wanted=True)
    said = {line for line in streaming_lines(log) if "shared between ranks" in line}
    shared = tower.units + 1 if streamed.mode == "data" else 0  # the stem has a buffer too
    assert said and all(f" {shared} shared between ranks" in line for line in said)


def test_every_answer_is_the_oracles_twice_and_each_ran_the_tower(streamed: Streamed) -> None:
    assert not streamed.wrong(["five images"])  # every rank learns in which order its blocks come
    passes, copied = streamed.counted("passes"), streamed.streamed_bytes()
    assert not streamed.wrong(list(streamed.right))
    assert not streamed.wrong(list(reversed(streamed.right)))
    ran = [now - then for then, now in zip(passes, streamed.counted("passes"), strict=True)]
    with_images = 2 * sum(bool(question.images) for question, _ in streamed.right.values())
    assert len(ran) == streamed.ranks
    if streamed.mode == "weights":
        assert min(ran) >= with_images
    else:
        assert min(ran) > 0
        assert sum(ran) >= with_images
    (tower,) = check_streaming(streamed.server.engine_log, wanted=True)
    for rank, (then, now) in enumerate(zip(copied, streamed.streamed_bytes(), strict=True)):
        # Each unit once for each pass: the next one begins with what the ring holds at its end.
        a_pass = (now - then) / ran[rank] / 2**20
        assert a_pass == pytest.approx(tower.mib, abs=0.06), f"rank {rank}"


def test_ten_clients_at_once_get_the_oracles_answers(streamed: Streamed) -> None:
    names = list(streamed.right)

    def client(number: int) -> dict[str, str]:
        first = number % len(names)  # so that text and images of all kinds meet in one batch
        return streamed.wrong(names[first:] + names[:first])

    with ThreadPoolExecutor(CLIENTS) as pool:
        for number, wrong in enumerate(pool.map(client, range(CLIENTS))):
            assert not wrong, f"client {number}: {wrong}"


@pytest.mark.parametrize(
    "inside",
    [
        "blocks.0.mlp",
        pytest.param("blocks.1.mlp", marks=pytest.mark.full),
        pytest.param("blocks.2.mlp", marks=pytest.mark.full),
        "blocks.3.mlp",
        "deepstack_merger_list.0.norm",
        "merger.norm",
    ],
)
def test_a_pass_that_raised_leaves_the_next_one_right(streamed: Streamed, inside: str) -> None:
    before = sum(streamed.counted("faults"))
    streamed.fail_once(inside)
    # The request whose pass failed, and was repeated; and those after it.
    assert not streamed.wrong(["chelsea", "text only", "two images"])
    failed = sum(streamed.counted("faults")) - before
    # In data mode one image is one rank's.
    assert failed == (streamed.ranks if streamed.mode == "weights" else 1)


def test_passes_that_raise_among_ten_clients_leave_all_answers_right(streamed: Streamed) -> None:
    before = sum(streamed.counted("faults"))
    names = [name for name, (question, _) in streamed.right.items() if question.images]

    def client(number: int) -> dict[str, str]:
        return streamed.wrong([names[number % len(names)], "text only"])

    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = [pool.submit(client, number) for number in range(CLIENTS)]
        for block in (2, 0):
            streamed.fail_once(f"blocks.{block}.attn")
        for answer in answers:
            assert not answer.result()
    # One that came after the last image waits for this one.
    assert not streamed.wrong(["coffee"])
    assert sum(streamed.counted("faults")) > before


def test_a_request_that_is_refused_or_given_up_leaves_the_next_one_right(
    streamed: Streamed,
) -> None:
    address = streamed.server.base_url
    with pytest.raises(RigError, match="status 4"):
        ask(address, SERVED_NAME, Question(WHAT, (b"no picture",)))
    question, _ = streamed.right["five images"]
    with pytest.raises(RigError, match="did not answer"):
        ask(address, SERVED_NAME, question, timeout=0.05)
    assert not streamed.wrong(["chelsea", "five images"])


@pytest.mark.full
def test_the_engine_ends_at_an_exception_that_leaves_the_tower(stage: Stage) -> None:
    """No request can fail alone in vLLM: so the tests above catch it outside of the tower."""
    with served_streamed(stage, 1, "weights", executor="mp") as server:
        on_each_rank(server, "fail_tower_once", "blocks.2.mlp", "die")
        with pytest.raises(RigError):
            ask(server.base_url, SERVED_NAME, stage.questions["chelsea"])
        assert "TowerFault: a test made blocks.2.mlp fail" in server.engine_log.read_text()


def noise(width: int, height: int, seed: int) -> bytes:
    """A PNG of random colours."""
    bits = random.Random(seed)
    rows = b"".join(b"\0" + bits.randbytes(3 * width) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
