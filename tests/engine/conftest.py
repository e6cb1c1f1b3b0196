"""The engine, built from the series and installed; a tiny model; and a server at each size.

Servers take a minute or more to start, so there is one for each size, and it answers all
questions. Only one lives at a time: pytest ends it before it starts that of the next parameter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rig.launch.serve import RunningServer
from rig.layout import Layout, layout_of_this_checkout
from rig.pins import Flavour, Pin, find_pin, this_arch
from rig.rehearsal.environment import EngineEnvironment
from rig.rehearsal.exchange import Answer, Question
from rig.rehearsal.photograph import photograph
from rig.rehearsal.rehearse import ready_environment, served_without_trace
from rig.rehearsal.stage import make_model, oracle_answers, serve_options
from rig.revision import read_revision
from rig.series.apply import apply
from rig.wheel.build import build_wheel

WHAT = "What is in this photograph?"


def built_cpu_wheel(layout: Layout, pin: Pin) -> Path:
    """The wheel of a pin's CPU engine, applied and built as `make build FLAVOR=cpu` does."""
    tree = apply(layout, pin)
    return build_wheel(layout, tree, Flavour.CPU, this_arch(), read_revision(layout)).path


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One release after the other, and in each one size after the other; the rest comes first.

    Left to itself, pytest goes through the sizes first and changes the release within each.
    """

    def place(item: pytest.Item) -> tuple[str, int]:
        call = getattr(item, "callspec", None)
        params = call.params if call and "engine" in item.keywords else {}
        return params.get("stage", ""), params.get("ranks", 0)

    items.sort(key=place)


@dataclass(frozen=True)
class Stage:
    """What the tests of one release share.

    Args:
        folder: for models and logs.
        digest: of the model's files.
        questions: name -> what is asked; `chelsea` and `coffee` give prompts of equal tokens.
        oracle: name -> what transformers answers.
    """

    wheel: Path
    environment: EngineEnvironment
    folder: Path
    model: Path
    digest: str
    questions: dict[str, Question]
    oracle: dict[str, Answer]


@pytest.fixture(scope="session", params=["0.32.0", pytest.param("0.31.0", marks=pytest.mark.full)])
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """The engine of one release in its environment, a model, questions and right answers."""
    layout = layout_of_this_checkout()
    pin = find_pin(layout, request.param)
    wheel = built_cpu_wheel(layout, pin)
    with ready_environment(layout, pin, wheel) as (environment, lock):
        folder = tmp_path_factory.mktemp("a stage")
        model = folder / "model"
        digest = make_model(environment, model, lock=lock)
        astronaut, chelsea, coffee = (
            photograph(environment.site_packages, name)
            for name in ("astronaut", "chelsea", "coffee")
        )
        questions = {
            "astronaut": Question(WHAT, (astronaut,)),
            "chelsea": Question(WHAT, (chelsea,)),
            "coffee": Question(WHAT, (coffee,)),
            "two images": Question(WHAT, (chelsea, coffee)),
            "two images, swapped": Question(WHAT, (coffee, chelsea)),
            "text only": Question("Is there a photograph?"),
        }
        answers = oracle_answers(environment, model, list(questions.values()), lock=lock)
        oracle = dict(zip(questions, answers, strict=True))
        yield Stage(wheel, environment, folder, model, digest, questions, oracle)


@pytest.fixture(scope="session", params=[1, 2, 4], ids=["TP1", "TP2", "TP4"])
def ranks(request: pytest.FixtureRequest) -> int:
    """The tensor parallel size of `server`."""
    size: int = request.param
    return size


@pytest.fixture(scope="session")
def server(stage: Stage, ranks: int) -> Iterator[RunningServer]:
    """The tiny model, served on a private Ray cluster; leaves no trace, or the teardown fails."""
    logs = stage.folder / f"logs {ranks}"
    options = serve_options(stage.environment, stage.model, logs, ranks=ranks)
    with served_without_trace(stage.environment, options) as running:
        yield running
