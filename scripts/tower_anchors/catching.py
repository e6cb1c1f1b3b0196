"""One architecture, from its name to a verdict."""

from __future__ import annotations

import os
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from vllm.model_executor.models import registry
from vllm.model_executor.models.registry import ModelRegistry

from tower_anchors import automatic, judging, preparing, strictest
from tower_anchors.absent import absent_packages
from tower_anchors.building import Built, build, vllm_config_of, without_files
from tower_anchors.devices import Resting, standin_accelerator
from tower_anchors.recipe import NotHere, Recipe, recipe_for
from tower_anchors.watch import Watch


@dataclass
class Caught:
    """What is known of one architecture.

    Attributes:
        architecture: its name in vLLM's registry.
        model: the registered class.
        verdict: clean, anchor, "no tower" or "cannot build".
        reason: why it cannot be built or run, in one line.
        recipe: the module it is from, or how it was made.
        marks: [function, modalities, modules] of each mark.
        towers: classes of the marked modules, `module:class`.
        stem: whether all of them are listed as clean, so that their stems stream.
        parameters: how many weights rested in its towers: in the marked ones, if it marks any.
        unmet: those of them that no run came across.
        runs: cases that ran.
        findings: as `judging.Finding`, with `marked`: whether a weight is in a marked tower.
        notes: what is odd and no anchor.
        seconds: it took.
    """

    architecture: str
    model: str = ""
    verdict: str = "cannot build"
    reason: str = ""
    recipe: str = ""
    marks: list[Any] = field(default_factory=list)
    towers: list[str] = field(default_factory=list)
    stem: bool = False
    parameters: int = 0
    unmet: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class CannotBuild(Exception):
    """No verdict on this architecture, and why."""


class NoTower(Exception):
    """There is nothing to judge: why that is so."""


def architectures() -> list[str]:
    """Every architecture of vLLM's registry; none is imported for it."""
    return sorted(ModelRegistry.models)


def is_multimodal(architecture: str) -> tuple[bool, str]:
    """Whether one is multimodal, and why it cannot be looked at: then it counts as if it were."""
    try:
        with absent_packages():
            model_class = ModelRegistry.models[architecture].load_model_cls()
    except (Exception, SystemExit) as error:
        # Without its code nobody can say what it is.
        return True, one_line(error)
    return bool(getattr(model_class, "supports_multimodal", False)), ""


def catch(architecture: str) -> Caught:
    """Build one architecture, run it, and judge; nothing that it raises gets out."""
    caught = Caught(architecture)
    started = time.monotonic()
    try:
        _catch(caught)
    except NoTower as error:
        caught.verdict, caught.reason = "no tower", str(error)
    except CannotBuild as error:
        caught.reason = str(error)
        if os.environ.get("TRACE"):
            traceback.print_exc()
    except Exception as error:
        caught.reason = one_line(error)
    caught.seconds = round(time.monotonic() - started, 2)
    return caught


def _catch(caught: Caught) -> None:
    with absent_packages() as absent:
        model_class = ModelRegistry.models[caught.architecture].load_model_cls()
    caught.notes += [f"imported without {name}" for name in absent]
    caught.model = model_class.__name__
    with without_files(), standin_accelerator() as device:
        built, kept = _first_that_runs(caught, model_class, device)
        judgement = judging.judge(built.model, kept, partial(_rest, built))
    names = _in_towers(built)
    caught.parameters = len(names)
    caught.unmet = sorted(names - judgement.met)
    if len(caught.unmet) == len(names):
        raise CannotBuild("no run came across a weight of its towers")
    caught.runs = list(kept)
    caught.notes += judgement.notes
    for finding in judgement.findings:
        marked = any(m.covers(w) for m in built.marks for w in finding.weights)
        caught.findings.append(asdict(finding) | {"marked": marked or not built.marks})
    in_towers = any(f["marked"] and not f["harmless"] for f in caught.findings)
    caught.verdict = "anchor" if in_towers else "clean"


Kept = dict[str, Callable[[Any], Any]]


def _first_that_runs(
    caught: Caught, model_class: type[nn.Module], device: torch.device
) -> tuple[Built, Kept]:
    """The model as the first recipe makes it with which it can be built and run."""
    failures: list[str] = []
    notes = caught.notes
    for name, recipe in _tries(caught.architecture, model_class):
        caught.recipe, caught.notes = name, list(notes)
        try:
            built, cases = _built(caught, recipe, model_class, device)
            _describe(caught, built)
            runs = runs_of(built.model, recipe, cases, device)
            return built, _that_run(caught, built.model, runs, cases)
        except CannotBuild as error:
            failures.append(str(error))
            if os.environ.get("TRACE"):
                traceback.print_exc()
    raise CannotBuild(failures[0])


def _tries(architecture: str, model_class: type[nn.Module]) -> Iterator[tuple[str, Recipe]]:
    own = recipe_for(architecture, model_class)
    if own is not None:
        yield own
        if {architecture, model_class.__name__} & set(own[1].models):
            return  # it says how; if it fails, that is what is to be told
    drafts = architecture in registry._SPECULATIVE_DECODING_MODELS
    if drafts and own is None and not automatic.tower_classes(model_class):
        raise NoTower("a drafter: the model that it drafts for encodes")
    yield from automatic.attempts(architecture, model_class)


def _built(
    caught: Caught, recipe: Recipe, model_class: type[nn.Module], device: torch.device
) -> tuple[Built, Mapping[str, Any]]:
    try:
        hf_config = recipe.config(caught.architecture)
        config = vllm_config_of(hf_config, caught.architecture, **recipe.options)
        built = build(model_class, config, device, patches=recipe.patches)
        return built, recipe.cases(hf_config)
    except NotHere as error:
        raise CannotBuild(str(error)) from error
    except Exception as error:
        raise CannotBuild(f"building: {one_line(error)}") from error


def _describe(caught: Caught, built: Built) -> None:
    caught.marks = [[m.how, list(m.modalities), list(m.names)] for m in built.marks]
    towers = [built.model.get_submodule(name) for m in built.marks for name in m.names]
    caught.towers = sorted({f"{type(t).__module__}:{type(t).__qualname__}" for t in towers})
    try:
        from vllm.model_executor.offloader.towers.stem import is_clean
    except ImportError:
        return
    with_weights = [tower for tower in towers if any(True for _ in tower.parameters())]
    caught.stem = bool(with_weights) and all(is_clean(tower) for tower in with_weights)


def _rest(built: Built, model: nn.Module) -> None:
    """Rest all that is no language model: what a mark names, and what none does."""

    def of_language(name: str) -> bool:
        return any(name == part or name.startswith(f"{part}.") for part in built.language if part)

    if not strictest.rest_parameters(model, lambda name: not of_language(name)):
        raise CannotBuild("it has no tower parameter")


def _in_towers(built: Built) -> set[str]:
    resting = {n for n, p in built.model.named_parameters() if isinstance(p, Resting)}
    return {n for n in resting if not built.marks or any(m.covers(n) for m in built.marks)}


def runs_of(
    model: nn.Module, recipe: Recipe, cases: Mapping[str, Any], device: torch.device
) -> dict[str, Callable[[Any], Any]]:
    """All that is run: the encodes, then what prepares one outside any forward."""

    def encode(m: Any, kwargs: Mapping[str, Any]) -> Any:
        return m.embed_multimodal(**preparing.given(kwargs, device))

    runs: dict[str, Callable[[Any], Any]] = {
        case: partial(encode, kwargs=kwargs) for case, kwargs in cases.items()
    }
    return runs | dict(recipe.calls) | preparing.graph_calls(model, cases, device)


def _that_run(
    caught: Caught,
    model: nn.Module,
    runs: Mapping[str, Callable[[Any], Any]],
    cases: Mapping[str, Any],
) -> Kept:
    """The runs that a resident model survives. The encodes it must; helpers it may not have."""
    if not cases:
        raise CannotBuild("its inputs cannot be guessed")
    kept: Kept = {}
    for name, run in runs.items():
        try:
            found = judging.results(model, run, Watch(tolerated=None))
        except Exception as error:
            if name in cases:
                raise CannotBuild(f"{name}: resident, {one_line(error)}") from error
            caught.notes.append(f"{name}: not run, {one_line(error)}")
            continue
        if name in cases and not found:
            raise CannotBuild(f"{name}: nothing was encoded")
        kept[name] = run
    return kept


def one_line(error: BaseException) -> str:
    """What went wrong, and where; the same on every machine."""
    frames = traceback.extract_tb(error.__traceback__)
    at = next((f for f in reversed(frames) if "/vllm/" in f.filename), frames[-1])
    text = str(error)
    if hasattr(error, "errors"):  # pydantic's first line only counts them
        text = "; ".join(str(found["msg"]) for found in error.errors())
    text = next(iter(text.strip().splitlines()), "")
    text = _ADDRESS.sub("0x...", _FOLDERS.sub("", text))
    short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return f"{type(error).__name__}: {short} ({at.filename.rpartition('/')[2]}:{at.lineno})"


_LONGEST = 160
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_FOLDERS = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+(?=[\w.+-]+)")
