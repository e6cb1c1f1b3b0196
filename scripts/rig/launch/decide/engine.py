"""The arguments of `vllm serve` and of `ray start`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rig.launch.arguments import has_option, pieces_of, value_of
from rig.launch.decide.peer import Peer
from rig.launch.decide.words import LOOPBACK, Known, Layout, Notes, User

# What a plan of a GPU's memory says that means something else, or nothing, to the CPU engine.
_ONLY_ON_CARDS = (
    "--gpu-memory-utilization",
    "--kv-cache-memory-bytes",
    "--kv-cache-dtype",
    "--max-num-batched-tokens",
)


def engine_arguments(
    known: Known, layout: Layout, peer: Peer, user: User, ray: bool, notes: Notes
) -> tuple[str, ...]:
    """Our arguments, without those that the user gives; then the plan's, then the rig file's."""
    port = "$RIG_PORT" if user.port is None else str(user.port)
    backend = "a private Ray cluster runs the ranks" if ray else "vLLM's own processes"
    table: list[tuple[tuple[str, ...], tuple[str, ...], str]] = [
        (("--host",), (user.host,), "loopback unless you say otherwise"),
        (("--port",), (port,), "where clients find it"),
        (("--tensor-parallel-size", "-tp"), (str(layout.tensor),), "one rank per device"),
    ]
    if layout.pipeline > 1:
        why = "groups of cards, each with whole layers, one behind the other"
        table.append((("--pipeline-parallel-size", "-pp"), (str(layout.pipeline),), why))
    executor = "ray" if ray else "mp"
    table.append((("--distributed-executor-backend",), (executor,), backend))
    if user.rehearse:
        table.append((("--enforce-eager",), (), "nothing to compile for on a rehearsal's CPU"))
    elif not peer.custom:
        table.append((("--disable-custom-all-reduce",), (), peer.custom_why))
    else:
        notes.say(
            "left", "--disable-custom-all-reduce", f"custom all-reduce stays on: {peer.custom_why}"
        )
    if _bind_to_nodes(known, layout, user, notes):
        nodes = "each rank on the CPUs and memory of its card's NUMA node"
        table.append((("--numa-bind",), (), nodes))
    from_rig = known.rig.defaults.arguments if known.rig is not None else ()
    table += _of_plan(known, (*from_rig, *user.arguments), user, notes)
    most = known.rig.defaults.max_model_len if known.rig is not None else None
    if most is not None and not any(names[0] == "--max-model-len" for names, _, _ in table):
        table.append((("--max-model-len",), (str(most),), "the rig file's default"))
    if not any(names[0] == "--limit-mm-per-prompt" for names, _, _ in table):
        video = "one profiled video can take most of the KV cache; give it a number if you need it"
        table.append((("--limit-mm-per-prompt",), ('{"video":0}',), video))
    arguments: list[str] = []
    for names, values, why in table:
        if has_option(user.arguments, *names) or has_option(from_rig, *names):
            continue
        notes.say("argument", names[0], why)
        arguments += [names[0], *values]
    for group in groups_of(from_rig):
        if not has_option(user.arguments, option_name(group[0])):
            notes.say("argument", group[0], "from the rig file")
            arguments += group
    _warn(user, (*from_rig, *user.arguments), notes)
    return tuple(arguments)


def option_name(word: str) -> str:
    """The name of an option in one of our own lists, without a value or a key of JSON."""
    return word.partition("=")[0].partition(".")[0]


def groups_of(arguments: Iterable[str]) -> list[list[str]]:
    """Options with their values, one list each."""
    groups: list[list[str]] = []
    for argument in arguments:
        if (argument.startswith("-") and not _is_number(argument)) or not groups:
            groups.append([argument])
        else:
            groups[-1].append(argument)
    return groups


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _of_plan(
    known: Known, given: Sequence[str], user: User, notes: Notes
) -> list[tuple[tuple[str, ...], tuple[str, ...], str]]:
    found: list[tuple[tuple[str, ...], tuple[str, ...], str]] = []
    if known.memory is None:
        return found
    parallel = ("--tensor-parallel-size", "--pipeline-parallel-size")
    for flag in known.memory.flags:
        if not flag.flag or flag.flag in parallel:
            continue
        if user.rehearse and flag.flag in _ONLY_ON_CARDS:
            notes.say("left", flag.flag, "a rehearsal has no memory of cards to plan")
            continue
        values = () if flag.value is None else (flag.value,)
        if has_option(given, flag.flag):
            told = value_of(given, flag.flag) if flag.value is not None else None
            if told != flag.value:
                wanted = " ".join((flag.flag, *values))
                notes.say("conflict", flag.flag, f"yours wins over the plan's {wanted}")
            continue
        found.append(((flag.flag,), values, flag.why or "the memory plan needs it"))
    return found


def _bind_to_nodes(known: Known, layout: Layout, user: User, notes: Notes) -> bool:
    """Whether ranks should be bound: only where there is more than one node to choose from."""
    box = known.box
    if user.rehearse or box is None or box.cards is None or layout.cards is None:
        return False
    cards = [card for card in box.cards if card.index in layout.cards]
    nodes = {card.numa_node for card in cards if card.numa_node is not None}
    if len(nodes - {-1}) < 2:
        return False
    if -1 in nodes or any(card.numa_node is None for card in cards):
        notes.say("left", "--numa-bind", "the NUMA node of a card is not known")
        return False
    if box.host.wsl or box.host.container != "":
        why = "in WSL2 or a container memory often cannot be bound; --numa-bind tries it"
        notes.say("left", "--numa-bind", why)
        return False
    if known.numactl is not True:
        notes.say("left", "--numa-bind", "vLLM needs the program numactl for it: install that")
        return False
    return True


def _warn(user: User, said: tuple[str, ...], notes: Notes) -> None:
    closed = user.host in (LOOPBACK, "localhost", "::1")
    key = has_option(said, "--api-key") or bool(user.inherited.get("VLLM_API_KEY"))
    if not closed and not key:
        why = f"--host {user.host} lets other machines in, and no --api-key or VLLM_API_KEY is set"
        notes.say("conflict", "--host", why)
    limits = "--limit-mm-per-prompt"
    if has_option(said, limits) and "video" not in pieces_of(said, limits):
        why = f"your {limits} does not name videos: vLLM makes room for them unless it has video 0"
        notes.say("advice", limits, why)
    if has_option(said, "--config"):
        why = "arguments above win over the file that --config names; repeat yours on the line"
        notes.say("conflict", "--config", why)


def ray_arguments(layout: Layout, user: User, notes: Notes) -> tuple[str, ...]:
    """The arguments of `ray` that make a private cluster of one node."""
    table = [
        ("--head", "a cluster of its own"),
        ("--block", "stays in front, so that its processes end with it"),
        ("--port=0", "a free port, so that clusters do not meet"),
        (f"--node-ip-address={LOOPBACK}", "not reachable from outside"),
        (f"--num-gpus={layout.devices}", "one device per rank"),
        ("--include-dashboard=false", "a web server that nobody asked for"),
        ("--disable-usage-stats", "nothing is reported to anyone"),
        (
            f"--object-store-memory={user.object_store_bytes}",
            "bytes; vLLM passes only small messages, Ray would take 30 % of the memory",
        ),
        (
            "--temp-dir=$RIG_RUN/r",
            "goes with the run; short, as socket paths have 107 bytes",
        ),
        (
            "--ray-client-server-port=$RIG_RAY_CLIENT_PORT",
            "Ray's default, 10001, is one per box; left out without grpc: Ray would refuse it",
        ),
    ]
    for argument, why in table:
        notes.say("ray", argument, why)
    return ("start", *(argument for argument, _ in table))
