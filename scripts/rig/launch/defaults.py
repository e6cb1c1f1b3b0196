"""Each variable and argument that a launch adds, with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rig.launch.arguments import has_option

LOOPBACK = "127.0.0.1"

Kind = Literal["environment", "argument", "ray", "removed", "conflict"]


@dataclass(frozen=True)
class Reason:
    """Why one part of a plan is there.

    Args:
        kind: "environment", "argument" (vLLM's), "ray" (an argument of Ray's), "removed"
            (an inherited variable), or "conflict" (the user's word against ours).
        subject: the variable or option.
        why: one sentence.
    """

    kind: Kind
    subject: str
    why: str


@dataclass(frozen=True)
class Wish:
    """What the choices below depend on."""

    extra: tuple[str, ...]
    inherited: Mapping[str, str]
    ray: bool
    rehearse: bool
    tensor: int
    devices: int
    host: str
    port: int | None
    object_store_bytes: int
    programs: str


# Inherited RAY_* variables name another cluster, its token or its temporary folder. These tune.
_HARMLESS_RAY_PREFIXES = ("RAY_CGRAPH_", "RAY_DEDUP_LOGS", "RAY_BACKEND_LOG_LEVEL")


def inherited_to_remove(inherited: Mapping[str, str], reasons: list[Reason]) -> tuple[str, ...]:
    """The inherited variables that would lead our cluster or engine to somebody else's."""
    removed: list[str] = []
    for name in sorted(inherited):
        if name.startswith("RAY_") and not name.startswith(_HARMLESS_RAY_PREFIXES):
            why = "it speaks of another Ray cluster than ours"
        elif name.startswith("VLLM_RIG_"):
            why = "it is for these tools; vLLM would call it unknown"
        else:
            continue
        reasons.append(Reason("removed", name, why))
        removed.append(name)
    return tuple(removed)


def security_variables(wish: Wish, reasons: list[Reason]) -> dict[str, str]:
    """What keeps the launch on loopback and its cluster closed. The user cannot override these."""
    table = {
        "VLLM_HOST_IP": (LOOPBACK, "one box: the ranks find each other on loopback"),
        "GLOO_SOCKET_IFNAME": ("lo", "one box: gloo listens on loopback only"),
        "NCCL_SOCKET_IFNAME": ("lo", "one box: NCCL's bootstrap listens on loopback only"),
        "VLLM_RPC_BASE_PATH": ("$RIG_RUN", "the engine's sockets go with the run's folder"),
    }
    if wish.ray:
        table |= {
            "RAY_AUTH_MODE": ("token", "without it, whoever reaches a port of Ray runs code here"),
            "RAY_AUTH_TOKEN_PATH": ("$RIG_RUN/token", "a token of this run, mode 0600"),
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": ("0", "puts every socket of Ray on loopback"),
            "RAY_USAGE_STATS_ENABLED": ("0", "nothing is reported to anyone"),
        }
    for name, (value, why) in table.items():
        reasons.append(Reason("environment", name, why))
        told = wish.inherited.get(name)
        if told is not None and told != value and not name.startswith("RAY_"):
            why = f"{name}={told} in your environment is not used: it would open this box"
            reasons.append(Reason("conflict", name, why))
    return {name: value for name, (value, _) in table.items()}


def engine_variables(wish: Wish, reasons: list[Reason]) -> dict[str, str]:
    """What the engine needs beyond that. A variable that the user has set keeps its value."""
    table: dict[str, tuple[str, str]] = {
        "PATH": (f"{wish.programs}:$PATH", "the environment's own programs (ninja) are found"),
    }
    if not wish.ray:
        table["TMPDIR"] = (
            "$RIG_RUN",
            "the file where the ranks meet goes with the run",
        )
    if wish.rehearse:
        table["VLLM_CPU_KVCACHE_SPACE"] = ("1", "GiB of KV cache per rank in host memory")
        table["HF_HUB_OFFLINE"] = ("1", "a rehearsal downloads nothing")
        if not wish.ray and wish.devices > 1:
            numa = "one NUMA node cannot give each rank its own"
            table["VLLM_CPU_OMP_THREADS_BIND"] = ("nobind", numa)
    else:
        order = "devices are numbered by slot, the same for CUDA, NVML and `nvidia-smi`"
        table["CUDA_DEVICE_ORDER"] = ("PCI_BUS_ID", order)
        p2p = "granted P2P is often not delivered (hang or wrong data): off until proven by value"
        table["NCCL_P2P_DISABLE"] = ("1", p2p)
        told = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"} & set(wish.inherited)
        if not told and _expandable_segments_are_safe(wish.extra):
            fragments = "memory is not lost to fragments, which a full card needs"
            table["PYTORCH_CUDA_ALLOC_CONF"] = ("expandable_segments:True", fragments)
    added: dict[str, str] = {}
    for name, (value, why) in table.items():
        told_value = wish.inherited.get(name)
        ours = name in ("PATH", "TMPDIR")
        if not ours and told_value is not None and told_value != value:
            why = f"{name}={told_value} from your environment wins over {value}"
            reasons.append(Reason("conflict", name, why))
            continue
        reasons.append(Reason("environment", name, why))
        added[name] = value
    return added


def _expandable_segments_are_safe(extra: tuple[str, ...]) -> bool:
    # vLLM refuses them with a KV connector; custom all-reduce dies at graph capture.
    if has_option(extra, "--kv-transfer-config"):
        return False
    return "--no-disable-custom-all-reduce" not in {a.replace("_", "-") for a in extra}


def engine_arguments(wish: Wish, reasons: list[Reason]) -> tuple[str, ...]:
    """Our arguments of `vllm serve`, without those that the user gives."""
    backend = "ray" if wish.ray else "mp"
    table: list[tuple[tuple[str, ...], tuple[str, ...], str]] = [
        (("--host",), (wish.host,), "loopback unless you say otherwise"),
        (
            ("--port",),
            ("$RIG_PORT" if wish.port is None else str(wish.port),),
            "where clients find it",
        ),
        (("--tensor-parallel-size", "-tp"), (str(wish.tensor),), "one rank per device"),
        (
            ("--distributed-executor-backend",),
            (backend,),
            "a private Ray cluster runs the ranks" if wish.ray else "vLLM's own processes",
        ),
    ]
    if wish.rehearse:
        table.append((("--enforce-eager",), (), "nothing to compile for on a rehearsal's CPU"))
    else:
        p2p = "needs true P2P; off until it is proven by value"
        table.append((("--disable-custom-all-reduce",), (), p2p))
    video = "one profiled video can take most of the KV cache; give it a number if you need it"
    table.append((("--limit-mm-per-prompt",), ('{"video":0}',), video))
    arguments: list[str] = []
    for names, values, why in table:
        if has_option(wish.extra, *names):
            continue
        reasons.append(Reason("argument", names[0], why))
        arguments += [names[0], *values]
    if wish.host not in (LOOPBACK, "localhost", "::1") and not has_option(wish.extra, "--api-key"):
        why = f"--host {wish.host} lets other machines in, and no --api-key is set"
        reasons.append(Reason("conflict", "--host", why))
    if has_option(wish.extra, "--config"):
        why = "arguments above win over the file that --config names; repeat yours on the line"
        reasons.append(Reason("conflict", "--config", why))
    return tuple(arguments)


def ray_arguments(wish: Wish, reasons: list[Reason]) -> tuple[str, ...]:
    """The arguments of `ray` that make a private cluster of one node."""
    table = [
        ("--head", "a cluster of its own"),
        ("--block", "stays in front, so that its processes end with it"),
        ("--port=0", "a free port, so that clusters do not meet"),
        (f"--node-ip-address={LOOPBACK}", "not reachable from outside"),
        (f"--num-gpus={wish.devices}", "one device per rank"),
        ("--include-dashboard=false", "a web server that nobody asked for"),
        ("--disable-usage-stats", "nothing is reported to anyone"),
        (
            f"--object-store-memory={wish.object_store_bytes}",
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
        reasons.append(Reason("ray", argument, why))
    return ("start", *(argument for argument, _ in table))
