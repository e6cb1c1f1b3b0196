"""Find the cause of a failure in an engine's or Ray's log, and say what to do about it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

from rig.engine_log.facts import Failure
from rig.engine_log.known import CONSEQUENCES, KNOWN, OUT_OF_MEMORY, Known
from rig.engine_log.lines import Line, parse_lines

_LAST = 3  # how near the end a sign of a hang must be
_FRAMES = 200
# Lines in which users' own words stand.
_QUOTING = ("Received request", "non-default args:", "Initializing a V1 LLM engine", "usage:")
# What was running when memory ran out, by the functions of its traceback; the first that fits.
_STAGES: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("capture_model", "profile_cudagraph"),
        "while CUDA graphs were captured",
        "lower --gpu-memory-utilization or --max-num-seqs, or pass --enforce-eager",
    ),
    (
        ("embed_multimodal", "get_multimodal_embeddings", "_execute_mm_encoder", "profile_mm"),
        "while an image or video of the largest size was profiled",
        'limit them: --limit-mm-per-prompt \'{"image":1,"video":0}\' and --mm-processor-kwargs '
        "'{\"max_pixels\":1048576}'; --offload-towers takes the tower off the card",
    ),
    (
        ("profile_run", "determine_available_memory"),
        "while the engine profiled its largest batch",
        "lower --max-num-batched-tokens or --max-num-seqs; `./rig plan` shows what fits",
    ),
    (
        ("load_model", "load_weights", "process_weights_after_loading"),
        "while the weights were loaded",
        "use a smaller quantisation or more cards, or offload; `./rig plan` shows what fits",
    ),
    (
        ("execute_model", "sample_tokens"),
        "while a request was served",
        "leave more headroom: lower --gpu-memory-utilization, or pin --kv-cache-memory-bytes",
    ),
)


_ERROR = re.compile(r"^[A-Za-z_][\w.]{1,120}(?:Error|Exception): .")


class FailureReader:
    """Give it each line, then ask for the failure."""

    def __init__(self) -> None:
        self._place = len(KNOWN)
        self._found: Failure | None = None
        self._error = ""
        self._frames: deque[str] = deque(maxlen=_FRAMES)
        self._last: deque[str] = deque(maxlen=_LAST)

    def see(self, line: Line) -> None:
        said = line.said
        if said.startswith(_QUOTING):
            return
        self._last.append(said)
        self._frames.append(said)
        # A warning ends nothing, even where it quotes an error ("Too many open files").
        if line.level in ("INFO", "DEBUG", "WARNING") or "NCCL INFO" in said:
            return
        if _ERROR.match(said) and not any(row.sign.search(said) for row in CONSEQUENCES):
            self._error = said[:300]
        for place, known in enumerate(KNOWN[: self._place]):
            if not known.only_at_end and known.sign.search(said):
                self._place, self._found = place, self._failure(known, said)
                return

    def failure(self) -> Failure | None:
        """The cause that counts most; None if the log shows none that is known."""
        for known in KNOWN[: self._place]:
            for said in reversed(self._last) if known.only_at_end else ():
                if known.sign.search(said):
                    return self._failure(known, said)
        if self._found and self._error and self._place >= len(KNOWN) - len(CONSEQUENCES):
            # Nothing that is known: then the last error that is no consequence says most.
            return self._found.model_copy(update={"cause": self._error, "line": self._error})
        return self._found

    def _failure(self, known: Known, said: str) -> Failure:
        match = known.sign.search(said)
        groups = [group or "not said" for group in match.groups()] if match else []
        cause, next_step = known.cause.format(*groups), known.next_step.format(*groups)
        if known is OUT_OF_MEMORY:
            frames = "\n".join(self._frames)
            for functions, when, what in _STAGES:
                if any(function in frames for function in functions):
                    cause, next_step = f"{cause} {when}", what
                    break
        return Failure(
            cause=cause, next_step=next_step, line=said[:500], certain=not known.only_at_end
        )


def find_failure(lines: Iterable[str]) -> Failure | None:
    """The failure that a log shows, with the line that shows it; None if none is known."""
    reader = FailureReader()
    for line in parse_lines(lines):
        reader.see(line)
    return reader.failure()


def known_failure(lines: Iterable[str]) -> tuple[str, str] | None:
    """What a log of Ray or of the engine says about its end: (cause, next step), or None.

    A sign of a hang counts only at the log's end; healthy starts show it, too.
    """
    failure = find_failure(lines)
    return (failure.cause, failure.next_step) if failure else None
