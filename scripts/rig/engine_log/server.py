"""What a running server says at its own addresses: /version, /metrics, /v1/models.

Much less than its log: nothing on offloaders, all-reduce or transports is there.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from rig.engine_log.facts import EngineFacts, Memory
from rig.errors import RigError

_LARGEST = 16 * 2**20
_INFO = re.compile(r"^vllm:cache_config_info\{(.*)\}\s", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A server that sends us elsewhere is not the one that was named."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None


def read_server(url: str, *, timeout_s: float = 5.0) -> EngineFacts:
    """Ask a running vLLM server what it knows of itself.

    Args:
        url: its base address, http or https; a path in it is kept as a prefix.
        timeout_s: for each of three questions.

    Raises:
        RigError: no such address, nobody answers, or what answers is no vLLM server.
    """
    base = _base(url)
    version = _json(base, "/version", timeout_s)
    if not isinstance(version, dict) or not isinstance(version.get("version"), str):
        raise RigError(
            "what answers there is no vLLM server", where=base, next_step="check the port"
        )
    try:
        metrics = _get(base, "/metrics", timeout_s)
    except RigError:
        metrics = ""  # --disable-log-stats serves none
    memory, asked = cache_facts(metrics)
    model, length = _model(base, timeout_s)
    series, patches = _series(version.get("rig"))
    return EngineFacts(
        source=base,
        version=version["version"],
        series=series,
        patches=patches,
        model=model,
        ready=True,
        memory=memory.model_copy(update={"max_model_len": length}),
        attention=asked.get("attention_backend"),
    )


def cache_facts(metrics: str) -> tuple[Memory, dict[str, str]]:
    """Of the text of /metrics: the KV cache, and all that `cache_config_info` holds."""
    match = _INFO.search(metrics)
    if not match:
        return Memory(), {}
    labels = dict(_LABEL.findall(match[1]))

    def number(name: str) -> float | None:
        text = labels.get(name, "")
        return float(text) if re.fullmatch(r"\d{1,15}(\.\d{1,20})?", text, re.ASCII) else None

    def whole(name: str) -> int | None:
        found = number(name)
        return None if found is None else int(found)

    memory = Memory(
        kv_tokens=whole("kv_cache_size_tokens"),
        kv_blocks=whole("num_gpu_blocks"),
        kv_block_tokens=whole("block_size"),
        max_concurrency=number("kv_cache_max_concurrency"),
        utilisation=number("gpu_memory_utilization"),
    )
    return memory, labels


def _series(rig: Any) -> tuple[str | None, tuple[str, ...]]:
    """What a rig build adds to /version; nothing of a plain one."""
    if not isinstance(rig, dict):
        return None, ()
    series, patches = rig.get("series"), rig.get("patches")
    # As short as the engine's own line in the log has it.
    return (
        series[:12] if isinstance(series, str) else None,
        tuple(map(str, patches)) if isinstance(patches, list) else (),
    )


def _model(base: str, timeout_s: float) -> tuple[str | None, int | None]:
    try:
        found = _json(base, "/v1/models", timeout_s)
    except RigError:
        return None, None  # it needs the key, if the server has one
    data = found.get("data") if isinstance(found, dict) else None
    first: Any = data[0] if isinstance(data, list) and data else None
    if not isinstance(first, dict):
        return None, None
    name, length = first.get("root") or first.get("id"), first.get("max_model_len")
    return (
        name if isinstance(name, str) else None,
        length if isinstance(length, int) else None,
    )


def _base(url: str) -> str:
    wrong = RigError(
        "this is not the address of a server",
        where=url,
        next_step="give one like http://127.0.0.1:8000",
    )
    try:
        parts = urlsplit(url)
        port_ok = parts.port is None or parts.port > 0
    except ValueError as error:
        raise wrong from error
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_ok:
        raise wrong
    if parts.username or parts.password:
        raise RigError("no user or password in the address, please", where=parts.hostname)
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))


def _get(base: str, path: str, timeout_s: float) -> str:
    # Without proxies: the server is on this box or in this house.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
    try:
        with opener.open(base + path, timeout=timeout_s) as answer:
            data: bytes = answer.read(_LARGEST)
    except urllib.error.HTTPError as error:
        raise RigError(f"the server answers {error.code}", where=base + path) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise RigError(
            f"nobody answers: {reason}",
            where=base + path,
            next_step="is the server up, and is this its port?",
        ) from error
    return data.decode(errors="replace")


def _json(base: str, path: str, timeout_s: float) -> Any:
    text = _get(base, path, timeout_s)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RigError(
            "what answers there is no vLLM server", where=base + path, next_step="check the port"
        ) from error
