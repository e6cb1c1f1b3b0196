"""The driver against the CUDA of the wheel, the cards against its kernels, the engine's parts."""

from __future__ import annotations

from rig.box.facts import Box, Card
from rig.box.rig_file import Rig
from rig.doctor.context import Context
from rig.doctor.finding import Check, Said, each_card

# The first driver branch for each major CUDA: docs.nvidia.com/deploy/cuda-compatibility,
# "Minor Version Compatibility", table 1.
FIRST_BRANCH = {11: 450, 12: 525, 13: 580}

# What vLLM's release images compile for: torch_cuda_arch_list in docker/Dockerfile of 0.31-0.33.
# A binary for 8.6 runs on 8.9 as well, not on another major number.
COMPILED_FOR = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (11, 0), (12, 0))

# "-open": the kernel modules that RTX 50 cards need; every card since RTX 20 runs with them.
_NEWER = (
    "install driver 580 or newer and reboot: Ubuntu `sudo apt install nvidia-driver-580-open`, "
    "Fedora with RPM Fusion `sudo dnf install akmod-nvidia`, Arch `sudo pacman -Syu nvidia-open`; "
    "a patched driver must be built anew for the new version"
)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def driver_cuda(box: Box, rig: Rig | None, context: Context) -> Said:
    """The CUDA that the driver speaks, against the wheel's."""
    driver = box.host.driver_cuda
    wheel = context.wheel
    if wheel is not None and wheel.cuda is None:
        seen = f"torch {wheel.torch} is a build without CUDA ({wheel.source})"
        if not box.cards:
            return Said("unknown", f"{seen}, and no card is seen: enough for a rehearsal")
        return Said(
            "fail",
            seen,
            "install the rig's CUDA wheel in an environment of its own: `make build`, then "
            "`python -m pip install dist/vllm-*.whl`",
        )
    if driver is None:
        return Said("unknown", "the driver did not say which CUDA it speaks")
    if wheel is None or wheel.cuda is None:
        said = f"the driver speaks CUDA {_dotted(driver)}; the wheel's CUDA is not known"
        return Said("unknown", said, "say which environment: `VLLM_RIG_PYTHON=.../bin/python`")
    wanted = wheel.cuda
    seen = (
        f"the driver speaks CUDA {_dotted(driver)}, torch {wheel.torch} was built with "
        f"{_dotted(wanted)} ({wheel.source})"
    )
    if driver[0] < wanted[0]:
        return Said("fail", seen, _NEWER)
    if driver < wanted:
        return Said("warn", f"{seen}: it runs, but kernels in PTX may be refused", _NEWER)
    return Said("pass", seen)


def driver_branch(box: Box, rig: Rig | None, context: Context) -> Said:
    """The driver's number, against the first branch for the wheel's CUDA."""
    version = box.host.driver_version
    if version is None:
        return Said("unknown", "no driver version was found")
    wheel = context.wheel
    if wheel is None or wheel.cuda is None or wheel.cuda[0] not in FIRST_BRANCH:
        return Said("unknown", f"driver {version}; which one the wheel needs is not known")
    first = version.split(".")[0]
    if not first.isdigit():
        return Said("unknown", f"driver {version}: not a number that can be compared")
    least = FIRST_BRANCH[wheel.cuda[0]]
    seen = f"driver {version}; CUDA {wheel.cuda[0]}.x needs {least} or newer"
    return Said("pass", seen) if int(first) >= least else Said("fail", seen, _NEWER)


def card_generation(box: Box, rig: Rig | None, context: Context) -> Said:
    """Whether the release holds kernels for each card."""

    def judge(card: Card) -> Said:
        has = card.compute_capability
        if has is None:
            return Said("unknown", "compute capability not known")
        seen = f"compute capability {_dotted(has)}"
        if has < COMPILED_FOR[0]:
            step = "leave this card out: `CUDA_VISIBLE_DEVICES=` with the others' numbers"
            return Said("fail", f"{seen}, older than {_dotted(COMPILED_FOR[0])}", step)
        if not any(has[0] == major and has[1] >= minor for major, minor in COMPILED_FOR):
            step = f"compile for it: `make build FROM=source`, `--cuda-arch {_dotted(has)}`"
            return Said("warn", f"{seen}, which the release was not compiled for", step)
        if has < (8, 0):
            step = "give the engine `--dtype half`"
            return Said("warn", f"{seen}: no bfloat16", step)
        return Said("pass", seen)

    return each_card(box, context, judge)


def engine_ray(box: Box, rig: Rig | None, context: Context) -> Said:
    """Ray in the engine's environment."""
    from rig.launch.engine_environment import RAY_VERSION

    engine = context.engine
    if engine is None:
        return Said("unknown", "no environment with vLLM was found")
    if not context.ray:
        return Said("pass", "not asked for (--executor mp)")
    step = f'`{engine.python} -m pip install "ray=={RAY_VERSION}"` (not ray[llm]: it brings '
    step += "another vLLM), or serve with `--executor mp`"
    if engine.ray is None:
        return Said("fail", f"Ray is not installed beside {engine.python}", step)
    if engine.ray != RAY_VERSION:
        return Said("warn", f"Ray {engine.ray}; {RAY_VERSION} is what was tried", step)
    return Said("pass", f"Ray {engine.ray}")


CHECKS = (
    Check(
        "driver-cuda",
        "driver",
        driver_cuda,
        "the CUDA that the driver speaks, against the CUDA that torch was built with",
        "An older driver refuses the wheel's kernels: the engine dies at its first CUDA call.",
        "`nvidia-smi` prints it in its first line (CUDA Version)",
        ("fail", "warn", "unknown", "pass"),
    ),
    Check(
        "driver-branch",
        "driver",
        driver_branch,
        "the driver's version, against the first branch for that CUDA",
        "Below that branch nothing built with this CUDA runs at all.",
        "`cat /proc/driver/nvidia/version`",
        ("fail", "unknown", "pass"),
    ),
    Check(
        "card-generation",
        "driver",
        card_generation,
        "each card's compute capability, against what the release was compiled for",
        "A card that the wheel holds no kernels for fails at the first one.",
        "`nvidia-smi --query-gpu=index,name,compute_cap --format=csv`",
        ("fail", "warn", "unknown", "pass"),
    ),
    Check(
        "engine-ray",
        "driver",
        engine_ray,
        "whether Ray is installed beside the engine, in the version that was tried",
        "vLLM brings no Ray: without it the ranks of a private cluster cannot start.",
        "say which environment: `VLLM_RIG_PYTHON=/path/to/environment/bin/python ./rig doctor`",
        ("fail", "warn", "unknown", "pass"),
        needs_cards=False,
    ),
)
