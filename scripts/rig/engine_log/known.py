"""The table of failures that owners of such boxes meet: a line of the log, its cause, what to do.

In the order in which they count: a root cause stands before what follows from it, so that the
first row that a log matches is the answer. `{0}`, `{1}` are what the pattern's groups held.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """Args: sign: where it is looked for, in one line; cause, next_step: what to say;
    only_at_end: a sign only when it is among the last lines, since healthy starts show it too."""

    sign: re.Pattern[str]
    cause: str
    next_step: str
    only_at_end: bool = False


def _row(sign: str, cause: str, next_step: str, *, only_at_end: bool = False) -> Known:
    return Known(re.compile(sign), cause, next_step, only_at_end)


_N = r"(\d{1,9}(?:\.\d{1,9})?)"

# What was running when it happened says what to do: see `failures`.
OUT_OF_MEMORY = _row(
    r"(?:OutOfMemoryError: (?!Task was killed)|CUDA out of memory\.|CUDA error: out of memory)",
    "a card ran out of memory",
    "`./rig plan` shows what fits; lower --gpu-memory-utilization or --max-model-len",
)

_CAUSES: tuple[Known, ...] = (
    # Arguments and files, before any card is touched.
    _row(
        r"error: unrecognized arguments: (.{1,200})",
        "this vLLM has no such argument: {0}",
        "see `vllm serve --help=all`; names change between releases",
    ),
    _row(
        r"The vLLM \S+ in .{1,300} is not what vllm-rig built",
        "the installed vLLM is not whole: files differ from what was built",
        "install the wheel again: pip install --force-reinstall --no-deps WHEEL",
    ),
    _row(
        r"(?:GatedRepoError: |Access to model .{1,200} is restricted)",
        "the model is gated and the hub did not let this user have it",
        "accept its licence on the model's page, then log in with `hf auth login`",
    ),
    _row(
        r"(?:(?:RepositoryNotFoundError|HFValidationError): |Repo id must (?:be in|use))",
        "there is no such model: neither a local folder nor a name on the hub",
        "check the spelling; a local folder needs its full path",
    ),
    _row(
        r"(?:LocalEntryNotFoundError: |OfflineModeIsEnabled: |outgoing traffic has been disabled)",
        "the model is not in the local cache, and the hub may not be or could not be reached",
        "download it first (`hf download NAME`), or unset HF_HUB_OFFLINE",
    ),
    _row(
        r"Can't load (image processor|feature extractor|processor|tokenizer|the configuration)",
        "the model's folder is incomplete: its {0} cannot be loaded",
        "download the whole model again; partial copies lack small files",
    ),
    _row(
        r"(?:SafetensorError|incomplete metadata, file not fully covered|HeaderTooLarge)",
        "a weight file is damaged or was not downloaded to its end",
        "delete it from the cache and download it again; check the disk's free space",
    ),
    _row(
        r"Model architectures .{1,200} are not supported",
        "this vLLM does not know the model's architecture",
        "see the list of supported models of this release; a newer pin may have it",
    ),
    _row(
        r"User-specified max_model_len \((\d{1,12})\) is greater than the derived",
        "--max-model-len {0} is more than the model was made for",
        "lower --max-model-len",
    ),
    _row(
        r"Total number of attention heads \((\d{1,6})\) must be divisible by tensor "
        r"parallel size \((\d{1,5})\)",
        "the model's {0} attention heads cannot be split over {1} cards",
        "choose a tensor-parallel size that divides them, or pipeline parallel; `./rig plan` "
        "names the choices",
    ),
    _row(
        r"Address already in use",
        "a port is taken by another program",
        "stop it (`ss -ltnp` names it) or pass another --port",
    ),
    # Driver and cards.
    _row(
        r"NVIDIA driver on your system is too old \(found version (\d{1,6})\)",
        "the NVIDIA driver is too old for this wheel's CUDA (it offers CUDA {0})",
        "update the driver; CUDA 13 wheels need 580 or newer",
    ),
    _row(
        r"(?:CUDA driver version is insufficient|compiled with an unsupported toolchain"
        r"|Error 804: forward compatibility)",
        "the NVIDIA driver does not fit this wheel's CUDA",
        "update the driver (CUDA 13 wheels need 580 or newer), and in a container use the same "
        "driver inside and outside",
    ),
    _row(
        r"Driver/library version mismatch",
        "the driver was updated and its kernel module was not reloaded",
        "reboot the box",
    ),
    _row(
        r"no kernel image is available for execution",
        "the wheel holds no code for a card of this generation",
        "use a wheel that was built for its compute capability",
    ),
    _row(
        r"(?:GPU is lost|has fallen off the bus|uncorrectable ECC error)",
        "a card has dropped off the bus or failed",
        "look at `dmesg` for Xid lines; check power, riser and slot, then reboot",
    ),
    _row(
        r"(?:No CUDA GPUs are available|no CUDA-capable device is detected"
        r"|Failed to infer device type)",
        "no card is visible to the engine",
        "check `nvidia-smi`, CUDA_VISIBLE_DEVICES and, in a container, its GPU option",
    ),
    _row(
        r"CUDA-capable device\(s\) is/are busy or unavailable",
        "a card is in exclusive mode and another program has it",
        "stop that program, or set the compute mode back to default",
    ),
    # Memory of the cards.
    _row(
        rf"Free memory on device \S{{1,20}} \({_N}/{_N} GiB\) on startup is less than",
        "a card has only {0} of {1} GiB free at the start: something else holds the rest",
        "stop what `nvidia-smi` shows on it, wait until a stopped engine has let go, or lower "
        "--gpu-memory-utilization",
    ),
    _row(
        r"No available memory for the cache blocks",
        "the weights and the activations leave no memory for the KV cache",
        "raise --gpu-memory-utilization, stream the tower (--offload-towers), limit images, or "
        "use more cards; `./rig plan` shows what fits",
    ),
    _row(
        rf"max seq len \((\d{{1,12}})\), \({_N} GiB KV cache is needed, which is larger than the "
        rf"available KV cache memory \({_N} GiB\)"
        r"(?:.{0,100}estimated maximum model length is (\d{1,12}))?",
        "one request of {0} tokens needs {1} GiB of KV cache and there are {2} GiB",
        "lower --max-model-len (the engine's estimate of what fits: {3}), or see `./rig plan`",
    ),
    _row(
        r"custom_all_reduce\.cuh:\d{1,6} 'invalid argument'",
        "custom all-reduce and expandable_segments exclude each other",
        "pass --disable-custom-all-reduce, or take expandable_segments out of "
        "PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF",
    ),
    OUT_OF_MEMORY,
    # Host memory and disks.
    _row(
        r"(?:[Ee]rror while creating shared memory segment /dev/shm"
        r"|/dev/shm.{0,120}No space left|No space left.{0,120}/dev/shm|Bus error)",
        "/dev/shm is full or too small (a container has 64 MiB unless told)",
        "docker: --ipc=host or --shm-size=16g; else remount it larger; `df /dev/shm` shows it",
    ),
    _row(
        r"(?:running low on memory|memory usage threshold|OutOfMemoryError: Task was killed)",
        "Ray ended a worker because the box ran out of memory",
        "offload less, or give the box or its cgroup more memory; `./rig plan` counts host memory",
    ),
    _row(
        r"(?:DefaultCPUAllocator: can't allocate memory|Cannot allocate memory|"
        r"cudaHostRegister.{0,60}fail|cudaHostAlloc.{0,60}fail)",
        "host memory could not be had or not be pinned",
        "compare what is offloaded with free memory, the cgroup's limit and `ulimit -l`",
    ),
    _row(
        r"No space left on device",
        "a disk is full",
        "`df -h` shows which: the model's cache, /tmp (Ray) or /dev/shm",
    ),
    _row(
        r"Too many open files",
        "the limit of open files is too low",
        "raise it: ulimit -n 65536",
    ),
    # Ray.
    _row(
        r"(?:InvalidAuthToken|RAY_AUTH_MODE is currently|[Aa]uthentication token.{0,80}(?:invalid"
        r"|missing|not found|required)|AuthenticationError)",
        "Ray refused the engine: one side uses token authentication and the other does not, or "
        "their tokens differ",
        "set RAY_AUTH_MODE=token and the same RAY_AUTH_TOKEN_PATH on both sides; "
        "scripts/serve.sh does",
    ),
    _row(
        r"(?:No module named 'ray'|Ray is not installed|Failed to import Ray)",
        "Ray is not installed beside the engine",
        "install the pinned one: see requirements/",
    ),
    _row(
        r"Cannot provide a placement group (?:requiring (\d{1,6})|of)",
        "Ray did not get the cards that the engine asked for within its time",
        "compare with `ray status`: another program holds cards, or Ray was started with fewer",
    ),
    _row(
        r"Timed out waiting for file \S{1,300}gcs_server_port",
        "Ray's head did not come up",
        "look at gcs_server.err among Ray's logs; a loaded or full box is the usual reason",
    ),
    # The way between the cards.
    _row(
        r"NCCL error.{0,80}(unhandled system error|unhandled cuda error|remote process exited"
        r"|internal error)",
        "NCCL failed between the cards: {0}",
        "run `./rig p2p`; start again with NCCL_P2P_DISABLE=1, and with NCCL_DEBUG=INFO to see "
        "more",
    ),
    _row(
        r"(?:Watchdog caught collective operation timeout|Timeout waiting for|"
        r"TimeoutError: RPC call to \w{1,60} timed out)",
        "the ranks waited for each other until the time was up",
        "run `./rig p2p`: peer access that is granted but not delivered looks like this; "
        "start again with NCCL_P2P_DISABLE=1",
    ),
    _row(
        r"CUDA error: (an illegal memory access|unspecified launch failure|device-side assert)",
        "a kernel failed on a card: {0}",
        "start again with --disable-custom-all-reduce and NCCL_P2P_DISABLE=1; if it stays, with "
        "--enforce-eager, and look at `dmesg` for Xid lines",
    ),
    # Something died: says who, not why.
    _row(
        r"RayWorkerProc rank=\[([\d, ]{1,60})\] died unexpectedly",
        "the process of rank {0} died",
        "look above it in the log, and at `dmesg` for the out-of-memory killer or Xid lines",
    ),
    _row(
        r"Worker proc (\S{1,60}) died unexpectedly",
        "the worker process {0} died",
        "look above it in the log, and at `dmesg` for the out-of-memory killer or Xid lines",
    ),
    _row(
        r"A worker died or was killed while executing a task",
        "a process of a rank was killed from outside",
        "look at `dmesg` for the out-of-memory killer; Ray's own logs name the worker",
    ),
    # Signs of a hang, only at the end of a log.
    _row(
        r"Waiting for creating a placement group",
        "Ray has fewer free cards than the engine asks for, and it waits",
        "compare with `ray status`: another program holds cards, or Ray was started with fewer",
        only_at_end=True,
    ),
    _row(
        r"(?:vLLM is using nccl==|NCCL INFO Bootstrap\s?: Using|NCCL INFO NET/)",
        "the log ends while NCCL sets up the way between the cards",
        "if nothing follows for some minutes: peer access is granted but not delivered, "
        "`./rig p2p` shows it; start again with NCCL_P2P_DISABLE=1",
        only_at_end=True,
    ),
    _row(
        r"No available shared memory broadcast block found in (\d{1,6}) seconds",
        "the ranks have been busy for {0} s, or one of them hangs",
        "compiling and quantising look the same: wait some minutes, then see whether the cards "
        "work (`nvidia-smi`) before you stop it",
        only_at_end=True,
    ),
)
# What follows from a cause that stands elsewhere.
CONSEQUENCES: tuple[Known, ...] = (
    _row(
        r"(?:Engine core initialization failed|WorkerProc initialization failed)",
        "the engine's core did not start, and its log does not say why in words that are known",
        "read upwards from that line to the first traceback",
    ),
    _row(
        r"(?:EngineDeadError|EngineCore encountered (?:a fatal error|an issue)|Executor failed\.)",
        "the engine's core died, and its log does not say why in words that are known",
        "read upwards from that line to the first traceback; look at `dmesg`, too",
    ),
)
KNOWN = (*_CAUSES, *CONSEQUENCES)
