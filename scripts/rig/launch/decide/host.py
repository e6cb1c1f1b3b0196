"""The variables of the engine and of Ray."""

from __future__ import annotations

from collections.abc import Mapping

from rig.launch.arguments import has_option, switch_of
from rig.launch.decide.peer import Peer
from rig.launch.decide.words import LOOPBACK, Known, Layout, Notes, User

# Inherited RAY_* variables name another cluster, its token or its temporary folder. These tune.
_HARMLESS_RAY_PREFIXES = ("RAY_CGRAPH_", "RAY_DEDUP_LOGS", "RAY_BACKEND_LOG_LEVEL")
# Weights that rest in host memory are page-locked, which WSL2 allows only when told to.
HOST_WEIGHTS = ("--offload-towers", "--cpu-offload-gb", "--offload-group-size")
_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
# With either of them vLLM has a KV connector, and refuses to start with expandable segments.
_KV_CONNECTOR = ("--kv-transfer-config", "--kv-offloading-size")
# Set by others in public recipes, with no measured gain that anyone has published for 2-4 cards.
_LEFT = {
    "NCCL_CUMEM_ENABLE": "recipes set it to 0 and none measured what that does: NCCL's default",
    "NCCL_ALGO": "nobody has measured a gain on two to four cards: NCCL chooses",
    "NCCL_MIN_NCHANNELS": "more channels raised bus bandwidth and nothing end to end",
    "OMP_NUM_THREADS": "vLLM and Ray set it for their workers; recipes say 1 or 8, unmeasured",
}


def removed_variables(inherited: Mapping[str, str], notes: Notes) -> tuple[str, ...]:
    """The inherited variables that would lead our cluster or engine to somebody else's."""
    removed: list[str] = []
    for name in sorted(inherited):
        if name.startswith("RAY_") and not name.startswith(_HARMLESS_RAY_PREFIXES):
            why = "it speaks of another Ray cluster than ours"
        elif name.startswith("VLLM_RIG_"):
            why = "it is for these tools; vLLM would call it unknown"
        else:
            continue
        notes.say("removed", name, why)
        removed.append(name)
    return tuple(removed)


def security_variables(user: User, ray: bool, notes: Notes) -> dict[str, str]:
    """What keeps the launch on loopback and its cluster closed. The user cannot override these."""
    table = {
        "VLLM_HOST_IP": (LOOPBACK, "one box: the ranks find each other on loopback"),
        "GLOO_SOCKET_IFNAME": ("lo", "one box: gloo listens on loopback only"),
        "NCCL_SOCKET_IFNAME": ("lo", "one box: NCCL's bootstrap listens on loopback only"),
        "VLLM_RPC_BASE_PATH": ("$RIG_RUN", "the engine's sockets go with the run's folder"),
    }
    if ray:
        table |= {
            "RAY_AUTH_MODE": ("token", "without it, whoever reaches a port of Ray runs code here"),
            "RAY_AUTH_TOKEN_PATH": ("$RIG_RUN/token", "a token of this run, mode 0600"),
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": ("0", "puts every socket of Ray on loopback"),
            "RAY_USAGE_STATS_ENABLED": ("0", "nothing is reported to anyone"),
        }
    for name, (value, why) in table.items():
        notes.say("environment", name, why)
        told = user.inherited.get(name)
        if told is not None and told != value and not name.startswith("RAY_"):
            risk = "it would open this box"
            if name == "VLLM_RPC_BASE_PATH":
                risk = "the run has its own folder"
            why = f"{name}={told} in your environment is not used: {risk}"
            notes.say("conflict", name, why)
    return {name: value for name, (value, _) in table.items()}


def engine_variables(
    known: Known, layout: Layout, peer: Peer, user: User, ray: bool, notes: Notes
) -> dict[str, str]:
    """What the engine needs beyond that. A variable that the user has set keeps its value."""
    ours: dict[str, tuple[str, str]] = {
        "PATH": (f"{user.programs}:$PATH", "the environment's own programs (ninja) are found"),
    }
    if not ray:
        ours["TMPDIR"] = ("$RIG_RUN", "the file where the ranks meet goes with the run")
    defaults = (
        _rehearsal(layout, ray) if user.rehearse else _on_cards(known, layout, peer, user, notes)
    )
    added: dict[str, str] = {}
    for name, (value, why) in {**ours, **defaults}.items():
        told = user.inherited.get(name)
        if name == "TMPDIR" and told is not None:
            why_not = f"TMPDIR={told} in your environment is not used: the run has its own folder"
            notes.say("conflict", name, why_not)
        if name not in ours and told is not None and told != value:
            sentence = f"{name}={told} from your environment wins over {value}"
            notes.say("conflict", name, sentence)
            continue
        notes.say("environment", name, why)
        added[name] = value
    return added


def _rehearsal(layout: Layout, ray: bool) -> dict[str, tuple[str, str]]:
    table = {
        "VLLM_CPU_KVCACHE_SPACE": ("1", "GiB of KV cache per rank in host memory"),
        "HF_HUB_OFFLINE": ("1", "a rehearsal downloads nothing"),
    }
    if not ray and layout.devices > 1:
        numa = "one NUMA node cannot give each rank its own"
        table["VLLM_CPU_OMP_THREADS_BIND"] = ("nobind", numa)
    return table


def _on_cards(
    known: Known, layout: Layout, peer: Peer, user: User, notes: Notes
) -> dict[str, tuple[str, str]]:
    order = "devices are numbered by slot, the same for CUDA, NVML and `nvidia-smi`"
    table: dict[str, tuple[str, str]] = {"CUDA_DEVICE_ORDER": ("PCI_BUS_ID", order)}
    told_order = user.inherited.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    shown = "CUDA_VISIBLE_DEVICES" in user.inherited
    if layout.cards is not None and not shown and told_order == "PCI_BUS_ID":
        _show_cards(known, layout, table)
    table |= peer.variables
    if "NCCL_P2P_LEVEL" in peer.variables and user.inherited.get("NCCL_P2P_DISABLE") == "1":
        why = "NCCL_P2P_DISABLE=1 from your environment wins, though P2P is proven here"
        notes.say("conflict", "NCCL_P2P_DISABLE", why)
    if not set(_ALLOCATOR) & set(user.inherited):
        _allocator(peer, user, notes, table)
    if known.box is not None and known.box.host.wsl:
        _wsl(known, user, notes, table)
    for name, why in _LEFT.items():
        if name not in user.inherited:
            notes.say("left", name, why)
    return table


def _show_cards(known: Known, layout: Layout, table: dict[str, tuple[str, str]]) -> None:
    """Name the cards where they are not simply all of them in their own order."""
    cards = layout.cards
    box = known.box
    if cards is None or box is None or box.cards is None:
        return
    everything = tuple(card.index for card in box.cards)
    if cards == everything:
        return
    if cards == tuple(sorted(cards)):
        why = f"{len(cards)} of the {len(everything)} cards: alike, free, the best joined"
    else:
        why = "cards joined by NVLink, or on one NUMA node, are neighbours in a group of ranks"
    table["CUDA_VISIBLE_DEVICES"] = (",".join(map(str, cards)), why)


def _allocator(peer: Peer, user: User, notes: Notes, table: dict[str, tuple[str, str]]) -> None:
    name = "PYTORCH_CUDA_ALLOC_CONF"
    if any(has_option(user.arguments, option) for option in _KV_CONNECTOR):
        notes.say("left", name, "a KV connector excludes expandable segments")
    elif peer.ipc:
        notes.say("left", name, "custom all-reduce and PCIe IPC exclude expandable segments")
    else:
        why = "memory is not lost to fragments, which a full card needs"
        table[name] = ("expandable_segments:True", why)


def _wsl(known: Known, user: User, notes: Notes, table: dict[str, tuple[str, str]]) -> None:
    planned = known.memory.flags if known.memory is not None else ()
    asked = [option for option in HOST_WEIGHTS if has_option(user.arguments, option)]
    if switch_of(user.arguments, "--offload-towers") is False:
        asked.remove("--offload-towers")
    if asked or any(flag.flag in HOST_WEIGHTS for flag in planned):
        why = "weights in host memory need pages locked, which WSL2 allows only when told to"
        table["VLLM_WSL2_ENABLE_PIN_MEMORY"] = ("1", why)
    why = "WSL2: about half of the memory can be page-locked, and VRAM spills to it in silence"
    notes.say("advice", "WSL2", why)
