"""Host memory: what will be page-locked against what may be, shared memory, NUMA."""

from __future__ import annotations

from rig.box.facts import Box
from rig.box.rig_file import Rig
from rig.doctor.cards import wanted_cards
from rig.doctor.context import Context
from rig.doctor.finding import Check, Said, gib, nothing_to_judge, used_cards

# A judgement of these tools: page-locked memory cannot be swapped, and the ranks' own memory,
# the page cache of the weights and the desktop need the rest.
_MOST = 0.8

# /dev/shm, from vLLM's source (0.31-0.33): a queue of 10 chunks of 24 MiB per rank for its
# answers and one per group, one of 10 x 16 MiB for the calls (shm_broadcast.py,
# VLLM_MQ_MAX_CHUNK_BYTES_MB). Each must find its whole size free, or the engine ends.
_MIB = 1 << 20
LARGEST_QUEUE = 240 * _MIB
_CALLS = 160 * _MIB
_GROUP = 24 * _MIB  # 6 chunks of 4 MiB, parallel_state.py
# NCCL's transport through shared memory, when P2P is off: what NVIDIA's NCCL guide asks of a
# container (--shm-size=1g: user guide, "Runtime and MPI issues", "Shared memory").
NCCL_BYTES = 1024 * _MIB
# Judged when nobody can say how many cards there are: the largest rig that has a launcher.
UNTOLD_RANKS = 8

_PLAN = "`./rig plan MODEL` says how much will be page-locked"


def host_memory(box: Box, rig: Rig | None, context: Context) -> Said:
    """What will be page-locked, against what the host has left."""
    available = box.host.memory_available_bytes
    if available is None:
        return Said("unknown", "available memory is not known")
    if context.pinned_bytes is None:
        return Said("unknown", f"{gib(available)} available; nothing is planned yet", _PLAN)
    seen = f"{gib(context.pinned_bytes)} will be page-locked, {gib(available)} are available"
    step = "end what uses memory (`ps aux --sort=-rss | head`), or offload less: smaller "
    step += "--cpu-offload-gb, no --offload-towers"
    if context.pinned_bytes > available:
        return Said("fail", seen, step)
    if context.pinned_bytes > _MOST * available:
        return Said("warn", f"{seen}: more than {_MOST:.0%} of it", step)
    return Said("pass", seen)


def cgroup(box: Box, rig: Rig | None, context: Context) -> Said:
    """The same against the control group's limit, which /proc/meminfo does not show."""
    limit = box.host.cgroup_limit_bytes
    if limit is None:
        return Said("unknown", "the control group's limit is not known")
    if limit < 0:
        return Said("pass", "no limit")
    used = box.host.cgroup_used_bytes
    if used is None:
        return Said("unknown", f"limit {gib(limit)}; what is used of it is not known")
    left = limit - used
    if context.pinned_bytes is None:
        said = f"{gib(left)} left of {gib(limit)}; nothing is planned yet"
        return Said("unknown", said, _PLAN)
    seen = f"{gib(context.pinned_bytes)} will be page-locked, {gib(left)} left of {gib(limit)}"
    step = "raise it: `docker run --memory`, MemoryMax= of the unit, or offload less"
    if context.pinned_bytes > left:
        return Said("fail", seen, step)
    if context.pinned_bytes > _MOST * left:
        return Said("warn", seen, step)
    return Said("pass", seen)


def memlock(box: Box, rig: Rig | None, context: Context) -> Said:
    """RLIMIT_MEMLOCK against what will be page-locked."""
    limit = box.host.memlock_bytes
    if limit is None:
        return Said("unknown", "the limit is not known")
    if limit < 0:
        return Said("pass", "no limit")
    if context.pinned_bytes is None:
        return Said("unknown", f"limit {gib(limit)}; nothing is planned yet", _PLAN)
    seen = f"limit {gib(limit)}, {gib(context.pinned_bytes)} will be page-locked"
    if limit >= context.pinned_bytes:
        return Said("pass", seen)
    # A warning: whether NVIDIA's driver counts against this limit was not measured.
    step = (
        "`ulimit -l unlimited` if the hard limit allows it; for good: `* - memlock unlimited` in "
        "/etc/security/limits.conf and log in anew; docker: `--ulimit memlock=-1`; systemd: "
        "LimitMEMLOCK=infinity. If the engine's log then names its page-locked bytes, it was not "
        "the limit"
    )
    return Said("warn", seen, step)


def shm_needed(ranks: int, object_store: int) -> int:
    """Bytes of /dev/shm that one engine may come to use; sources stand at the constants."""
    return _CALLS + ranks * LARGEST_QUEUE + _GROUP + object_store + (NCCL_BYTES if ranks > 1 else 0)


def _ranks(box: Box, rig: Rig | None, context: Context) -> int:
    wanted = wanted_cards(rig, context)
    if wanted is not None:
        return max(1, wanted)
    cards = used_cards(box, context)
    return UNTOLD_RANKS if cards is None else max(1, len(cards))


def shm(box: Box, rig: Rig | None, context: Context) -> Said:
    """/dev/shm against what vLLM, Ray and NCCL take of it."""
    from rig.launch.plan import ServeOptions

    free, size = box.host.shm_free_bytes, box.host.shm_bytes
    if free is None or size is None:
        return Said("unknown", "the size of /dev/shm is not known")
    ranks = _ranks(box, rig, context)
    store = ServeOptions.object_store_bytes if context.ray else 0
    need = shm_needed(ranks, store)
    seen = f"{gib(free)} free of {gib(size)}; {ranks} rank{'s' * (ranks > 1)} may use {gib(need)}"
    step = (
        "docker: `--ipc=host` or `--shm-size=16g`; else `sudo mount -o remount,size=50% "
        "/dev/shm`; old files of ended engines: `ls -l /dev/shm`"
    )
    if free < LARGEST_QUEUE:
        return Said("fail", f"{seen}; one queue of vLLM's alone takes {gib(LARGEST_QUEUE)}", step)
    return Said("pass", seen) if free >= need else Said("warn", seen, step)


def numa(box: Box, rig: Rig | None, context: Context) -> Said:
    """On how many memory nodes the cards hang."""
    nodes = box.host.numa_nodes
    if nodes is None:
        return Said("unknown", "the host's memory nodes are not known")
    if len(nodes) == 1:
        return Said("pass", "the host has one memory node")
    cards = used_cards(box, context)
    nothing = nothing_to_judge(cards)
    if nothing is not None or cards is None:
        return nothing or Said("unknown", "")
    lost = [str(card.index) for card in cards if card.numa_node is None or card.numa_node < 0]
    if lost:
        step = "`cat /sys/bus/pci/devices/*/numa_node`; -1 means that the BIOS says nothing: look "
        step += "there for NUMA nodes per socket (NPS), or bind by hand with `numactl`"
        return Said("unknown", f"{len(nodes)} nodes; not known for card {', '.join(lost)}", step)
    by_node: dict[int, list[str]] = {}
    for card in cards:
        by_node.setdefault(card.numa_node or 0, []).append(str(card.index))
    seen = "; ".join(f"node {n}: card {', '.join(found)}" for n, found in sorted(by_node.items()))
    if len(by_node) == 1:
        return Said("pass", seen)
    step = "bind each rank to its card's node; `serve --dry-run` says whether it does; traffic "
    step += "between sockets is slower: prefer tensor parallel inside one node"
    return Said("warn", seen, step)


CHECKS = (
    Check(
        "host-memory",
        "memory",
        host_memory,
        "what will be page-locked, against the memory that is available",
        "Page-locked memory cannot be swapped: too much of it and the kernel ends processes.",
        "`free -h`",
        ("fail", "warn", "unknown", "pass"),
        needs_cards=False,
    ),
    Check(
        "cgroup",
        "memory",
        cgroup,
        "the same against the limit of the control group",
        "A container or unit may have far less than `free` shows, and is ended at its limit.",
        "`cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.current`",
        ("fail", "warn", "unknown", "pass"),
        needs_cards=False,
    ),
    Check(
        "memlock",
        "memory",
        memlock,
        "the limit on locked memory, against what will be page-locked",
        "Where locking is refused, offloaded weights are copied from pageable memory, many times "
        "slower, or not at all.",
        "`ulimit -a | grep locked`",
        ("warn", "unknown", "pass"),
        needs_cards=False,
    ),
    Check(
        "shm",
        "memory",
        shm,
        "/dev/shm, against vLLM's queues, Ray's object store and NCCL's buffers",
        "Docker gives 64 MiB; without P2P all traffic between cards goes through here.",
        "`df -h /dev/shm`",
        ("fail", "warn", "unknown", "pass"),
        needs_cards=False,
    ),
    Check(
        "numa",
        "memory",
        numa,
        "whether the cards hang on one memory node",
        "A rank on the other socket's cores reads its offloaded weights over the link between "
        "sockets.",
        "`numactl -H; nvidia-smi topo -m`",
        ("warn", "unknown", "pass"),
        needs_cards=False,
    ),
)
