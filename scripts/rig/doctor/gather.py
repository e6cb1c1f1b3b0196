"""Find out what the checks need to know beside the box itself. Effects live here, not in checks."""

from __future__ import annotations

import errno
import os
import pwd
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from rig.box.facts import Box
from rig.box.rig_file import Rig
from rig.doctor.context import Context, Engine, Port, Wheel
from rig.doctor.wheel_cuda import ask_environment, wheel_of_pin
from rig.errors import RigError
from rig.layout import Layout
from rig.p2p.verdict import Verdict
from rig.pins import find_pin

_LOOPBACK = "127.0.0.1"


def gather(
    layout: Layout,
    box: Box,
    rig: Rig | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    python: str | None = None,
    cards_wanted: int | None = None,
    pinned_bytes: int | None = None,
    ports: Iterable[int] | None = None,
    verdict: Verdict | None = None,
) -> Context:
    """The context for a box that is this machine (about 0.1 s: one interpreter is asked).

    Args:
        environment: the variables of whoever will serve; this process's if None.
        python: the engine's interpreter; as `serve` chooses it if None.
        ports: those that will be wanted; the rig file's, or 8000, if None.
        verdict: what `rig p2p` showed; what it keeps for this box and this engine if None.

    Raises:
        RigError: CUDA_VISIBLE_DEVICES names cards that the box does not have.
    """
    told = os.environ if environment is None else environment
    engine, wheel = _engine(python, told)
    why_not = ""
    if verdict is None:
        verdict, why_not = _stored_verdict(box, engine)
    wanted = tuple(ports) if ports is not None else (rig.defaults.port if rig else 8000,)
    return Context(
        cards_wanted=cards_wanted,
        cards=_visible(box, told),
        pinned_bytes=pinned_bytes,
        wheel=wheel or pinned_wheel(layout),
        engine=engine,
        ports=tuple(try_port(port) for port in wanted),
        user=user_name(),
        wsl_pin_memory=told.get("VLLM_WSL2_ENABLE_PIN_MEMORY") == "1",
        verdict=verdict,
        no_verdict=why_not,
    )


def gather_for_text(layout: Layout) -> Context:
    """The context for a box that somebody else's text describes: nothing of this machine."""
    return Context(wheel=pinned_wheel(layout), from_text=True)


def pinned_wheel(layout: Layout) -> Wheel | None:
    """The torch of the primary pin; None when its CUDA is not known here."""
    pin = find_pin(layout, None)
    return wheel_of_pin(pin.torch, pin.version)


def _engine(python: str | None, told: Mapping[str, str]) -> tuple[Engine | None, Wheel | None]:
    from rig.launch.engine_environment import choose_python

    try:
        chosen = choose_python(python, told)
    except RigError:
        if python is not None:
            raise
        return None, None
    return ask_environment(chosen)


def _stored_verdict(box: Box, engine: Engine | None) -> tuple[Verdict | None, str]:
    from rig.p2p.store import look_up

    if engine is None:
        return None, "without an engine's environment no verdict can hold"
    kept = look_up(box, Path(engine.python))
    return kept.verdict, kept.why_not


def _visible(box: Box, told: Mapping[str, str]) -> tuple[int, ...] | None:
    from rig.box.visible import VARIABLE, visible_cards

    value = told.get(VARIABLE)
    if value is None or not box.cards:
        return None
    return tuple(card.index for card in visible_cards(box, value))


def try_port(port: int, host: str = _LOOPBACK) -> Port:
    """Whether a server could listen on a port of this machine now."""
    from rig.launch.sockets import holders_of_port

    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # As servers do: closing connections of an ended server do not keep a port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return Port(number=port, taken=None)
        return Port(number=port, taken=True, holders=tuple(holders_of_port(port)))
    return Port(number=port, taken=False)


def user_name() -> str | None:
    """This user's name, or None in a container that does not know it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return None
