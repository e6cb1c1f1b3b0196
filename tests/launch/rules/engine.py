"""What the plan, the rig file and the host say to the engine."""

from __future__ import annotations

from rig.box.rig_file import DefaultsTable, PowerTable
from rig.memory.result import Advice

from .row import ALLOCATOR, FOUR, PERMIT, Row, box, plan, rig, verdict

ENGINE = [
    # images
    Row(
        "no video unless asked for",
        args=("--limit-mm-per-prompt", '{"video":0}'),
        kinds=(("argument", "--limit-mm-per-prompt"),),
    ),
    Row(
        "the user's limit wins",
        said=("--limit-mm-per-prompt.video", "1"),
        no_args=("--limit-mm-per-prompt",),
        kinds=(("-advice", "--limit-mm-per-prompt"),),
    ),
    Row(
        "a limit that forgets videos is said",
        said=("--limit-mm-per-prompt", '{"image":2}'),
        no_args=("--limit-mm-per-prompt",),
        kinds=(("advice", "--limit-mm-per-prompt"),),
    ),
    # memory plan
    Row(
        "the plan's flags are taken",
        plan=plan(
            4, flags=[Advice(flag="--offload-towers"), Advice(flag="--max-model-len", value="8192")]
        ),
        args=("--offload-towers", "--max-model-len", "8192"),
        kinds=(("argument", "--offload-towers"), ("argument", "--max-model-len")),
    ),
    Row(
        "the user's word wins over the plan's flag, and that is said",
        plan=plan(4, flags=[Advice(flag="--max-model-len", value="8192")]),
        said=("--max-model-len", "16384"),
        no_args=("--max-model-len",),
        kinds=(("conflict", "--max-model-len"),),
    ),
    Row(
        "the same word twice is no conflict",
        plan=plan(4, flags=[Advice(flag="--max-model-len", value="8192")]),
        said=("--max-model-len=8192",),
        no_args=("--max-model-len",),
        kinds=(("-conflict", "--max-model-len"),),
    ),
    Row(
        "a rehearsal leaves out what is of a card's memory",
        plan=plan(4, flags=[Advice(flag="--gpu-memory-utilization", value="0.9")]),
        user={"rehearse": True},
        no_args=("--gpu-memory-utilization",),
        kinds=(("left", "--gpu-memory-utilization"),),
    ),
    # rig file
    Row(
        "the rig file's defaults come before the user's words",
        rig=rig(
            defaults=DefaultsTable(max_model_len=4096, arguments=("--seed", "1", "--enforce-eager"))
        ),
        args=("--max-model-len", "4096"),
        kinds=(("argument", "--max-model-len"), ("argument", "--seed")),
    ),
    Row(
        "the user's word takes the place of the rig file's",
        rig=rig(defaults=DefaultsTable(max_model_len=4096, arguments=("--seed", "1"))),
        said=("--seed", "2", "--max-model-len", "100"),
        no_args=("--seed", "--max-model-len"),
    ),
    Row(
        "a negative number belongs to its option",
        rig=rig(defaults=DefaultsTable(arguments=("--seed", "-1"))),
        said=("--seed", "2"),
        no_args=("--seed", "-1"),
    ),
    Row(
        "the rig file's ranks, address and executor count as said",
        rig=rig(
            defaults=DefaultsTable(arguments=("-tp", "2", "--distributed-executor-backend", "mp"))
        ),
        env={"RAY_AUTH_MODE": None, "TMPDIR": "$RIG_RUN"},
        args=("-tp", "2"),
        no_args=("--tensor-parallel-size",),
    ),
    Row(
        "what the rig file says of custom all-reduce decides about the allocator",
        rig=rig(defaults=DefaultsTable(arguments=("--no-disable-custom-all-reduce",))),
        env={ALLOCATOR: None},
        no_args=("--disable-custom-all-reduce",),
    ),
    Row(
        "the rig file's word takes the place of ours",
        rig=rig(defaults=DefaultsTable(arguments=("--limit-mm-per-prompt", '{"video":2}'))),
        args=("--limit-mm-per-prompt", '{"video":2}'),
    ),
    # WSL2
    Row(
        "WSL2: pages may be locked only when told, and are where weights rest on the host",
        box=box(wsl=True),
        said=("--offload-towers",),
        env={"VLLM_WSL2_ENABLE_PIN_MEMORY": "1"},
        kinds=(("advice", "WSL2"),),
    ),
    Row(
        "WSL2: the same when the plan wants it",
        box=box(wsl=True),
        plan=plan(4, flags=[Advice(flag="--offload-towers")]),
        env={"VLLM_WSL2_ENABLE_PIN_MEMORY": "1"},
    ),
    Row(
        "WSL2: not where nothing rests on the host",
        box=box(wsl=True),
        env={"VLLM_WSL2_ENABLE_PIN_MEMORY": None},
    ),
    Row(
        "WSL2: not where the user says that the towers stay",
        box=box(wsl=True),
        said=("--no-offload-towers",),
        env={"VLLM_WSL2_ENABLE_PIN_MEMORY": None},
    ),
    Row(
        "not WSL2: not set",
        box=box(),
        said=("--offload-towers",),
        env={"VLLM_WSL2_ENABLE_PIN_MEMORY": None},
    ),
    # power
    Row(
        "power: the sum against the supply is said",
        rig=rig(power=PowerTable(psu_w=1200)),
        box=box(cards={i: {"power_limit_w": 350.0} for i in range(4)}),
        kinds=(("advice", "power"),),
    ),
    Row(
        "power: a supply that is large enough is not spoken of",
        rig=rig(power=PowerTable(psu_w=2000)),
        box=box(cards={i: {"power_limit_w": 350.0} for i in range(4)}),
        kinds=(("-advice", "power"),),
    ),
    Row(
        "power: only of the cards in use",
        rig=rig(2, power=PowerTable(psu_w=2000, cap_w=250, lock_graphics_mhz=1500)),
        box=box(
            4,
            nvlink=[(1, 3)],
            cards={
                i: {"power_limit_w": 250.0, "graphics_clock_locked_mhz": 1500}
                if i % 2
                else {"power_limit_w": 350.0}
                for i in range(4)
            },
        ),
        kinds=(("-advice", "power"),),
    ),
    Row(
        "power: unknown limits are an assumption, not a pass",
        rig=rig(power=PowerTable(psu_w=1200)),
        box=box(),
        kinds=(("assumed", "power"),),
    ),
    Row(
        "power: a cap alone does not hold bursts back",
        rig=rig(power=PowerTable(cap_w=250, lock_graphics_mhz=1500)),
        box=box(cards={i: {"power_limit_w": 250.0} for i in range(4)}),
        kinds=(("advice", "power"),),
    ),
    # what is left alone
    Row(
        "nothing without a measured gain is set",
        box=box(),
        env=dict.fromkeys(
            ("NCCL_ALGO", "NCCL_CUMEM_ENABLE", "NCCL_MIN_NCHANNELS", "OMP_NUM_THREADS")
        ),
        kinds=(("left", "NCCL_CUMEM_ENABLE"), ("left", "OMP_NUM_THREADS"), ("left", "NCCL_ALGO")),
    ),
    # security
    Row(
        "one box: loopback, and a token",
        env={
            "VLLM_HOST_IP": "127.0.0.1",
            "GLOO_SOCKET_IFNAME": "lo",
            "NCCL_SOCKET_IFNAME": "lo",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": "$RIG_RUN/token",
        },
        args=("--host", "127.0.0.1"),
    ),
    Row(
        "what keeps the box closed cannot be overridden, and that is said",
        inherited={"VLLM_HOST_IP": "10.0.0.2", "NCCL_SOCKET_IFNAME": "eth0", "RAY_AUTH_MODE": "x"},
        env={"VLLM_HOST_IP": "127.0.0.1", "NCCL_SOCKET_IFNAME": "lo", "RAY_AUTH_MODE": "token"},
        kinds=(
            ("conflict", "VLLM_HOST_IP"),
            ("conflict", "NCCL_SOCKET_IFNAME"),
            ("removed", "RAY_AUTH_MODE"),
        ),
    ),
    Row(
        "opening the server without a key is said",
        said=("--host", "0.0.0.0"),
        kinds=(("conflict", "--host"),),
    ),
    Row(
        "a key in the environment is a key",
        said=("--host", "0.0.0.0"),
        inherited={"VLLM_API_KEY": "x"},
        kinds=(("-conflict", "--host"),),
    ),
    Row(
        "without Ray the run's own folder holds its files, and that is said",
        user={"executor": "mp"},
        inherited={"TMPDIR": "/elsewhere"},
        env={"TMPDIR": "$RIG_RUN"},
        kinds=(("conflict", "TMPDIR"),),
    ),
    # rehearsal
    Row(
        "a rehearsal sets nothing of a card",
        user={"rehearse": True},
        verdict=verdict(("nccl-p2p", FOUR), ("custom", FOUR)),
        env=dict.fromkeys(
            ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "CUDA_DEVICE_ORDER", ALLOCATOR, PERMIT)
        )
        | {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"},
        args=("--enforce-eager",),
    ),
]
