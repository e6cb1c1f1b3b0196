"""What a running server says at its addresses: asked of a real socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rig.engine_log import read_server, rows
from rig.errors import RigError

_METRICS = """\
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",\
gpu_memory_utilization="0.92",kv_cache_max_concurrency="11.54",kv_cache_size_tokens="378112",\
num_gpu_blocks="23632",prefix_caching_hash_algo="sha256 \\"x\\""} 1.0
vllm:num_requests_running{engine="0",model_name="tiny"} 0.0
"""
_ANSWERS = {
    "/version": json.dumps(
        {"version": "0.33.0+rig.2", "rig": {"series": "ab" * 32, "patches": ["0101", "0901"]}}
    ),
    "/metrics": _METRICS,
    "/v1/models": json.dumps({"data": [{"id": "tiny", "root": "/m/tiny", "max_model_len": 32768}]}),
}


@contextmanager
def _server(answers: dict[str, str], location: str = "") -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path in answers
            self.send_response((302 if location else 404) if not known else 200)
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(answers.get(self.path, "").encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_server_tells_its_version_its_model_and_its_cache() -> None:
    with _server(_ANSWERS) as url:
        facts = read_server(url + "/")
    assert (facts.version, facts.model, facts.ready) == ("0.33.0+rig.2", "/m/tiny", True)
    assert (facts.series, facts.patches) == ("abababababab", ("0101", "0901"))
    memory = facts.memory
    assert (memory.kv_tokens, memory.kv_blocks, memory.kv_block_tokens) == (378_112, 23_632, 16)
    assert (memory.max_model_len, memory.max_concurrency) == (32_768, 11.54)
    shown = dict(rows(facts))
    assert shown["all-reduce"] == "not said"
    assert "378,112 tokens" in shown["KV cache"]


def test_without_metrics_and_with_a_key_the_version_remains() -> None:
    with _server({"/version": '{"version": "0.33.0+rig.2"}'}) as url:
        facts = read_server(url)
    assert (facts.series, facts.patches) == (None, ())
    assert (facts.version, facts.model, facts.memory.kv_tokens) == ("0.33.0+rig.2", None, None)


@pytest.mark.parametrize("answer", ["hello", "[1]", '{"version": 3}', "[" * 100_000])
def test_what_is_no_vllm_is_an_error(answer: str) -> None:
    with _server({"/version": answer}) as url, pytest.raises(RigError, match="no vLLM server"):
        read_server(url)


def test_it_goes_nowhere_else() -> None:
    with (
        _server(_ANSWERS) as other,
        _server({}, location=f"{other}/version") as url,
        pytest.raises(RigError, match="answers 302"),
    ):
        read_server(url)


def test_nobody_there_is_an_error() -> None:
    with _server({}) as url:
        pass
    with pytest.raises(RigError, match="nobody answers"):
        read_server(url)


@pytest.mark.parametrize(
    "url", ["file:///etc/hostname", "ftp://h/", "127.0.0.1:8000", "http://", "http://h:x/", ""]
)
def test_only_web_addresses_are_asked(url: str) -> None:
    with pytest.raises(RigError, match="not the address of a server"):
        read_server(url)


def test_credentials_in_an_address_are_refused_and_not_shown() -> None:
    with pytest.raises(RigError) as caught:
        read_server("http://me:secret@127.0.0.1:1/")
    assert "secret" not in str(caught.value)
