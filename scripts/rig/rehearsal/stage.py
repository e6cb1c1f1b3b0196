"""What a rehearsal and the engine's tests share: the model, the oracle's answers, the launch."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import rig
from rig.launch.plan import Executor, ServeOptions
from rig.rehearsal.commands import ask_engine
from rig.rehearsal.environment import EngineEnvironment
from rig.rehearsal.exchange import Answer, Question

SERVED_NAME = "tiny"
SEED = 7
# Tokens; the longest prompt here, two images and a sentence, has 155.
_CONTEXT = 1024
_PACKAGE_PATH = Path(rig.__file__).resolve().parents[1]


def make_model(
    environment: EngineEnvironment,
    folder: Path,
    architecture: str = "qwen3-vl",
    seed: int = SEED,
    *,
    lock: int | None = None,
) -> str:
    """Make a tiny model, whole or not at all, in place of what lies in the folder.

    Args:
        lock: the descriptor of the lock under which no one else makes a model in this folder.

    Returns:
        The digest of its files.
    """
    for left in folder.parent.glob(f"{folder.name}.part-*"):  # of a run that was killed
        shutil.rmtree(left, ignore_errors=True)
    part = folder.with_name(f"{folder.name}.part-{os.getpid()}")
    try:
        arguments = [architecture, str(part), "--seed", str(seed)]
        module = "rig.rehearsal.tiny_models"
        digest = ask_engine(environment.python, module, arguments, "", _PACKAGE_PATH, lock)
        if folder.exists():
            shutil.rmtree(folder)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return digest.strip()


def oracle_answers(
    environment: EngineEnvironment,
    model: Path,
    questions: Sequence[Question],
    *,
    lock: int | None = None,
) -> list[Answer]:
    """What transformers answers to each question.

    Args:
        lock: the descriptor of the lock under which no one else replaces the model.
    """
    asked = json.dumps([question.as_json() for question in questions])
    said = ask_engine(
        environment.python, "rig.rehearsal.oracle", [str(model)], asked, _PACKAGE_PATH, lock
    )
    return [Answer.from_json(raw) for raw in json.loads(said)]


def reach_of_weights(
    environment: EngineEnvironment, model: Path, question: Question
) -> dict[str, float]:
    """How far each parameter tensor moves the answer's logprobs when it is disturbed."""
    asked = json.dumps(question.as_json())
    said = ask_engine(
        environment.python, "rig.rehearsal.sensitivity", [str(model)], asked, _PACKAGE_PATH
    )
    return {str(name): float(change) for name, change in json.loads(said).items()}


def serve_options(
    environment: EngineEnvironment,
    model: Path,
    log_folder: Path,
    *,
    ranks: int,
    executor: Executor = "ray",
    more: Sequence[str] = (),
) -> ServeOptions:
    """How a tiny model is served: through the launcher of real rigs, in float32.

    In float32 because the oracle computes in it: in bfloat16 the order of additions alone would
    move the logprobs further than a fault might.

    Args:
        more: further arguments of `vllm serve`.
    """
    return ServeOptions(
        model=str(model),
        python=environment.python,
        log_folder=log_folder,
        ranks=ranks,
        executor=executor,
        rehearse=True,
        extra_arguments=(
            *("--served-model-name", SERVED_NAME),
            *("--dtype", "float32"),
            *("--max-model-len", str(_CONTEXT)),
            *more,
        ),
    )
