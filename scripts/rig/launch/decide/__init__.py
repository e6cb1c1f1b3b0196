"""The one place where it is decided how a model is run: pure, from facts to words.

decision = decide(rig, box, verdict, memory, user)

Nothing is read and nothing is started here. What the user says wins, and where it meets what is
known that is said; only what keeps the box closed cannot be overridden.
"""

from __future__ import annotations

from dataclasses import replace

from rig.box.facts import Box
from rig.box.rig_file import Rig
from rig.errors import RigError
from rig.launch.arguments import value_of, whole_number_of
from rig.launch.decide.engine import engine_arguments, ray_arguments
from rig.launch.decide.host import engine_variables, removed_variables, security_variables
from rig.launch.decide.layout import decide_layout
from rig.launch.decide.peer import decide_peer
from rig.launch.decide.power import say_power
from rig.launch.decide.words import Decision, Kind, Known, Layout, Notes, Reason, User
from rig.memory.result import MemoryPlan
from rig.p2p.verdict import Verdict

__all__ = ["Decision", "Kind", "Known", "Layout", "Reason", "User", "decide"]


def decide(
    rig: Rig | None,
    box: Box | None,
    verdict: Verdict | None,
    memory: MemoryPlan | None,
    user: User,
    *,
    release: str | None = None,
    numactl: bool | None = None,
) -> Decision:
    """Decide what to run.

    Args:
        rig: what the box is meant to be, and what its owner prefers.
        box: what was seen of it; None when nobody looked.
        verdict: what `rig p2p` has shown of this very box; None when nothing is known.
        memory: the plan of its memory; None when there is none.
        user: the user's arguments and environment.
        release: the engine's vLLM release, as "0.33.0".
        numactl: whether that program is installed.

    Raises:
        RigError: an argument that cannot be served, or more cards than there are.
    """
    known = Known(rig, box, verdict, memory, release, numactl)
    notes = Notes()
    # What the rig file says counts as said, before the user's own words: the last one wins.
    from_rig = rig.defaults.arguments if rig is not None else ()
    said = _with_addresses(replace(user, arguments=(*from_rig, *user.arguments)))
    user = replace(user, host=said.host, port=said.port)
    ray = _executor(said, notes) == "ray"
    layout = decide_layout(known, said, notes)
    peer = decide_peer(known, layout, said, notes)
    security = security_variables(user, ray, notes)
    environment = engine_variables(known, layout, peer, said, ray, notes)
    arguments = engine_arguments(known, layout, peer, user, ray, notes)
    ray_words: tuple[str, ...] = ()
    if ray:
        ray_words = ray_arguments(layout, user, notes)
        address = "the address that the private cluster chose for itself"
        notes.say("environment", "RAY_ADDRESS", address)
        environment["RAY_ADDRESS"] = "$RIG_RAY_ADDRESS"
    if not user.rehearse:
        say_power(known, layout, notes)
    removed = removed_variables(user.inherited, notes)
    return Decision(
        layout=layout,
        environment={**security, **environment},
        security=security,
        removed=removed,
        vllm_arguments=arguments,
        ray_arguments=ray_words,
        ray=ray,
        files=peer.files,
        host=user.host,
        port=user.port,
        reasons=tuple(notes.reasons),
    )


def _with_addresses(user: User) -> User:
    host = value_of(user.arguments, "--host") or user.host
    port = whole_number_of(user.arguments, "--port", most=65535) or user.port
    return replace(user, host=host, port=port)


def _executor(user: User, notes: Notes) -> str:
    asked = value_of(user.arguments, "--distributed-executor-backend")
    if asked is None:
        return user.executor
    if asked not in ("ray", "mp"):
        raise RigError(f"--distributed-executor-backend is {asked!r}", next_step="use ray or mp")
    if asked != user.executor:
        why = f"your --distributed-executor-backend {asked} wins over {user.executor}"
        notes.say("conflict", "--distributed-executor-backend", why)
    return asked
