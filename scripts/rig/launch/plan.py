"""What will be run, decided before anything is run.

A plan is pure: it reads no file and starts nothing, so that `--dry-run` prints exactly what
`serving` does. What only a running launch knows stands in it as a marker: `$RIG_RUN` (the run's
private folder), `$RIG_RAY_ADDRESS`, `$RIG_RAY_CLIENT_PORT` and `$RIG_PORT` (a free port, when none
was asked for).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from rig.errors import RigError
from rig.launch.arguments import value_of, whole_number_of
from rig.launch.decide import Known, Reason, User, decide

Executor = Literal["ray", "mp"]

# What a running launch fills in, as a whole word.
MARKER = re.compile(r"\$(?:RIG_RAY_CLIENT_PORT|RIG_RAY_ADDRESS|RIG_RUN|RIG_PORT|PATH)(?!\w)")


@dataclass(frozen=True)
class ServeOptions:
    """What a caller wants served.

    Args:
        model: a Hugging Face name or a folder, as vLLM takes it.
        python: the interpreter of the engine environment; `ray` and `vllm` lie beside it.
        log_folder: where engine.log and ray.log go (kept after the stop; made if missing).
        ranks: tensor parallel size, and so the number of devices that Ray is told of.
            `--tensor-parallel-size` among the extra arguments wins over it.
        extra_arguments: for vLLM, untouched, after ours.
        executor: "ray" (a private cluster) or "mp" (vLLM's own processes).
        rehearse: the CPU engine on logical devices: no GPU is looked for, nothing is downloaded.
        host: the address that the server listens on.
        port: its port; None takes a free one.
        ready_timeout_s: how long the engine may take until it answers.
        stop_patience_s: how long a stop asks the engine to end before it is killed.
        object_store_bytes: the size of Ray's object store. vLLM passes only small messages
            through it; Ray's own default is 30 % of the memory.
        allow_open_sockets: only warn of a listening socket that other machines can reach.
        custom_all_reduce_pcie: custom all-reduce is wanted on more than two PCIe cards, if proven.
    """

    model: str
    python: Path
    log_folder: Path
    ranks: int = 4
    extra_arguments: tuple[str, ...] = ()
    executor: Executor = "ray"
    rehearse: bool = False
    host: str = "127.0.0.1"
    port: int | None = None
    ready_timeout_s: float = 600.0
    stop_patience_s: float = 15.0
    object_store_bytes: int = 256 * 1024 * 1024
    allow_open_sockets: bool = False
    custom_all_reduce_pcie: bool = False


@dataclass(frozen=True)
class ServePlan:
    """What will be run, with a reason for each part.

    Args:
        options: what was asked.
        tensor_parallel_size: how many devices share each layer.
        devices: how many devices the engine needs (tensor x pipeline x data parallel).
        ray_command: the whole command of the private cluster; empty without Ray.
        engine_command: the whole command of the server.
        vllm_arguments: the part of it after `vllm serve`.
        ray_environment: the variables added to the environment of Ray, exactly.
        engine_environment: the same for the engine.
        removed_variables: inherited variables that neither of them may see.
        host: the address that the server listens on.
        port: its port, or None for a free one.
        scheme: "http" or "https".
        reasons: why, in the order of printing; those of kind "conflict" deserve a warning.
        cards: the card of each rank by PCI order, where that is known.
        files: path -> text of what the engine reads, to be written before it starts, mode 0600.
    """

    options: ServeOptions
    tensor_parallel_size: int
    devices: int
    ray_command: tuple[str, ...]
    engine_command: tuple[str, ...]
    vllm_arguments: tuple[str, ...]
    ray_environment: Mapping[str, str]
    engine_environment: Mapping[str, str]
    removed_variables: tuple[str, ...]
    host: str
    port: int | None
    scheme: str
    reasons: tuple[Reason, ...] = field(default=())
    cards: tuple[int, ...] | None = None
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def python(self) -> Path:
        return self.options.python

    @property
    def model(self) -> str:
        return self.options.model

    @property
    def ranks(self) -> int:
        return self.devices

    @property
    def _number_of_ours(self) -> int:
        return len(self.vllm_arguments) - len(self.options.extra_arguments)

    @property
    def conflicts(self) -> tuple[str, ...]:
        """Where the user's arguments and ours met, one sentence each."""
        return tuple(reason.why for reason in self.reasons if reason.kind == "conflict")

    def filled(self, markers: Mapping[str, str]) -> ServePlan:
        """The plan with its markers replaced, e.g. `{"$RIG_PORT": "23456"}`."""

        def fill(text: str) -> str:
            return MARKER.sub(lambda marker: markers.get(marker[0], marker[0]), text)

        # The model and the extra arguments are the user's: a "$PATH" in them is theirs.
        ours = tuple(map(fill, self.vllm_arguments[1 : self._number_of_ours]))
        vllm_arguments = (self.model, *ours, *self.options.extra_arguments)
        port = self.port
        if port is None and "$RIG_PORT" in markers:
            port = int(markers["$RIG_PORT"])
        return replace(
            self,
            port=port,
            ray_command=tuple(map(fill, self.ray_command)),
            engine_command=(*self.engine_command[:2], *vllm_arguments),
            vllm_arguments=vllm_arguments,
            ray_environment={k: fill(v) for k, v in self.ray_environment.items()},
            engine_environment={k: fill(v) for k, v in self.engine_environment.items()},
        )


def plan_serve(
    options: ServeOptions,
    inherited: Mapping[str, str] | None = None,
    known: Known | None = None,
) -> ServePlan:
    """Decide what to run: what `decide` says, as whole commands.

    Args:
        options: what is wanted.
        inherited: the environment that the launch starts from; the process's own if not given.
        known: the rig, the box, the P2P verdict, the memory plan; nothing is known if absent.

    Raises:
        RigError: an argument that cannot be served, e.g. a size that is not a number.
    """
    inherited = os.environ if inherited is None else inherited
    known = known or Known()
    extra = options.extra_arguments
    said = (*(known.rig.defaults.arguments if known.rig is not None else ()), *extra)
    _refuse_what_cannot_be_served(options, said)
    decision = decide(
        known.rig,
        known.box,
        known.verdict,
        known.memory,
        User(
            arguments=extra,
            inherited=inherited,
            ranks=options.ranks,
            executor=options.executor,
            rehearse=options.rehearse,
            host=options.host,
            port=options.port,
            object_store_bytes=options.object_store_bytes,
            programs=str(options.python.parent),
            custom_all_reduce_pcie=options.custom_all_reduce_pcie,
            folder=str(options.log_folder),
        ),
        release=known.release,
        numactl=known.numactl,
    )
    vllm_arguments = (options.model, *decision.vllm_arguments, *extra)
    ray_command: tuple[str, ...] = ()
    if decision.ray:
        ray_command = (str(options.python.parent / "ray"), *decision.ray_arguments)
    environment = decision.environment
    return ServePlan(
        options=options,
        tensor_parallel_size=decision.layout.tensor,
        devices=decision.layout.devices,
        ray_command=ray_command,
        engine_command=(str(options.python.parent / "vllm"), "serve", *vllm_arguments),
        vllm_arguments=vllm_arguments,
        # Ray's workers inherit the raylet's environment, so it must know what the engine knows.
        ray_environment={k: v for k, v in environment.items() if k != "RAY_ADDRESS"},
        engine_environment=environment,
        removed_variables=decision.removed,
        host=decision.host,
        port=decision.port,
        scheme="https" if value_of(said, "--ssl-certfile") else "http",
        reasons=decision.reasons,
        cards=decision.layout.cards,
        files=decision.files,
    )


def _refuse_what_cannot_be_served(options: ServeOptions, said: tuple[str, ...]) -> None:
    if not options.model or options.model.startswith("-"):
        raise RigError("no model was named", next_step="name it first, vLLM's arguments after it")
    if MARKER.search(str(options.python)):
        raise RigError(
            "the path of the engine's Python holds the name of a variable of these tools",
            where=options.python,
            next_step="make the environment in a folder with a plain path",
        )
    for option, alias in (
        ("--data-parallel-size", "-dp"),
        ("--prefill-context-parallel-size", "-pcp"),
    ):
        if (whole_number_of(said, option, alias) or 1) > 1:
            raise RigError(
                f"{option} is not supported: the ranks of it cannot be told apart and proven",
                next_step="start one server for each part of the cards, each with its own "
                "--tensor-parallel-size and --port: a second one takes the cards that are free",
            )
    if value_of(said, "--uds") is not None:
        raise RigError(
            "--uds is not supported: readiness is checked over TCP",
            next_step="leave it out; the server listens on loopback unless --host says otherwise",
        )
