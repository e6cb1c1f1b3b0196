"""The host around the cards: WSL2, containers, virtual machines, other Rays, ports, space."""

from __future__ import annotations

from rig.box.facts import Box
from rig.box.rig_file import Rig
from rig.doctor.context import Context
from rig.doctor.finding import Check, Said, combine, gib

# The run's folder lies there: Ray's logs and sockets. A judgement from rehearsals, not a limit
# of Ray's.
_TMP_LEAST = 128 << 20
_TMP_GOOD = 1 << 30
# Windows lets at most about this part of the memory be page-locked (vllm/platforms/cuda.py).
_WSL_PINNED = 0.5


def wsl(box: Box, rig: Rig | None, context: Context) -> Said:
    """Windows Subsystem for Linux."""
    if box.host.wsl is None:
        return Said("unknown", "not known whether this is WSL2")
    if not box.host.wsl:
        return Said("pass", "no")
    pinned, memory = context.pinned_bytes, box.host.memory_bytes
    if pinned and not context.wsl_pin_memory:
        step = "`export VLLM_WSL2_ENABLE_PIN_MEMORY=1` before the serve script; or offload nothing"
        return Said("fail", f"WSL2, and {gib(pinned)} must be page-locked, which is off", step)
    if pinned and memory is not None and pinned > _WSL_PINNED * memory:
        step = "raise `memory` in %USERPROFILE%\\.wslconfig, then `wsl --shutdown`; or offload less"
        return Said("fail", f"WSL2: {gib(pinned)} to page-lock of {gib(memory)}", step)
    step = "expect less: no NUMA, no view of the links, and Windows moves GPU memory to RAM "
    step += "without an error when it is short (5 to 10 times slower, as users report)"
    return Said("warn", "WSL2", step)


def container(box: Box, rig: Rig | None, context: Context) -> Said:
    """A container around the engine."""
    kind = box.host.container
    if kind is None:
        return Said("unknown", "not known whether this is a container")
    if kind == "":
        return Said("pass", "none")
    step = (
        "give it `--ipc=host --ulimit memlock=-1 --cap-add SYS_NICE` (shared memory, locked "
        "memory, NUMA binding), and set variables inside: the host's do not reach it"
    )
    return Said("warn", f"{kind}: others' processes and some limits are not seen from inside", step)


def virtual_machine(box: Box, rig: Rig | None, context: Context) -> Said:
    """A virtual machine around all of it."""
    virtual = box.host.virtual_machine
    if virtual is None:
        return Said("unknown", "not known whether this is a virtual machine")
    if not virtual:
        return Said("pass", "no")
    step = "run `./rig doctor` on its host, too: links, BAR1, IOMMU and ACS are true only there"
    return Said("warn", "a virtual machine", step)


def ray_running(box: Box, rig: Rig | None, context: Context) -> Said:
    """Ray nodes that run already."""
    nodes = box.host.ray
    if nodes is None:
        return Said("unknown", "processes could not be listed")
    if not nodes:
        if box.host.container != "":  # inside, others' processes are hidden
            return Said("unknown", "none is seen, but a container may hide others'")
        return Said("pass", "none")
    pids = ",".join(str(node.pid) for node in nodes)
    step = f"see what it is: `ps -o pid,user,lstart,args -p {pids}`. `serve` starts its own beside "
    step += "it; never `ray stop`: it ends every Ray of the box"

    def told(user: str | None) -> Said:
        if user is None or context.user is None:
            return Said("warn", f"user {user or 'not known'}", step)
        if user == context.user:
            return Said("warn", "yours: another serve, or what is left of one", step)
        return Said("warn", f"of user {user}: it is left alone; mind whose cards it holds", step)

    return combine(((f"{n.pid} ({n.program})", told(n.user)) for n in nodes), "pid")


def ports(box: Box, rig: Rig | None, context: Context) -> Said:
    """The TCP ports that will be wanted."""
    if context.ports is None:
        return Said("unknown", "not tried")
    if not context.ports:
        return Said("pass", "no certain port is wanted")
    parts = []
    for port in context.ports:
        if port.taken is None:
            said = Said("unknown", "could not be tried")
        elif port.taken:
            holders = ", ".join(port.holders) or "a process that this user may not see"
            step = f"`ss -ltnp 'sport = :{port.number}'` names it; end it, or serve with `--port`"
            said = Said("fail", f"taken by {holders}", step)
        else:
            said = Said("pass", "free")
        parts.append((str(port.number), said))
    return combine(parts, "port")


def tmp_space(box: Box, rig: Rig | None, context: Context) -> Said:
    """Space for the run's folder."""
    free = box.host.tmp_free_bytes
    if free is None:
        return Said("unknown", "not known")
    step = "`df -h /tmp; du -xsh /tmp/* | sort -h | tail`; or point TMPDIR at another disk"
    if free < _TMP_LEAST:
        return Said("fail", f"{gib(free)} free", step)
    return Said("warn" if free < _TMP_GOOD else "pass", f"{gib(free)} free", step)


CHECKS = (
    Check(
        "wsl",
        "host",
        wsl,
        "WSL2, and whether page-locked memory is on there",
        "WSL2 locks no memory unless told to, and hides links and memory nodes.",
        "`cat /proc/version`",
        ("fail", "warn", "unknown", "pass"),
        needs_cards=False,
    ),
    Check(
        "container",
        "host",
        container,
        "a container around the engine",
        "A container has limits of its own and hides what others do on the cards.",
        "`ls /.dockerenv; cat /proc/1/cgroup`",
        ("warn", "unknown", "pass"),
        needs_cards=False,
    ),
    Check(
        "virtual-machine",
        "host",
        virtual_machine,
        "a virtual machine around the box",
        "Inside one, links and BAR1 are what the hypervisor makes up.",
        "`systemd-detect-virt`",
        ("warn", "unknown", "pass"),
        needs_cards=False,
    ),
    Check(
        "ray-running",
        "host",
        ray_running,
        "Ray nodes that run already, and whose",
        "Another Ray may hold the cards, and one command ends every Ray of a box.",
        "`pgrep -a raylet`",
        ("warn", "unknown", "pass"),
        needs_cards=False,
    ),
    Check(
        "ports",
        "host",
        ports,
        "the TCP ports that will be wanted",
        "A server that finds its port taken ends, minutes after it began to load.",
        "`ss -ltn`",
        ("fail", "unknown", "pass"),
        needs_cards=False,
    ),
    Check(
        "tmp-space",
        "host",
        tmp_space,
        "free space in the folder for temporary files",
        "Ray keeps sockets and logs there, and compilers their scratch files.",
        "`df -h /tmp`",
        ("fail", "warn", "unknown", "pass"),
        needs_cards=False,
    ),
)
