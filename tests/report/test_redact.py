"""No secret survives, and what is no secret stays as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.report.identity import Identity, identity_of_this_process
from rig.report.redact import Redactor

_ME = Identity(
    users=("katharina",),
    homes=("/home/katharina",),
    hosts=("kat-box.example.lan", "kat-box"),
    secrets=("correct-horse-battery",),
)
_GPU = "GPU-1f0e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"


def _redacted(text: str, identity: Identity = _ME) -> str:
    return Redactor(identity).redact(text)


# (text, what must be gone, what it becomes)
_SECRETS = [
    ("HF_TOKEN=hf_abcdefghijklmnopqrstuvwx", "hf_abc", "HF_TOKEN=<token>"),
    ("token hf_abcdefghijklmnopqrstuvwx is bad", "hf_abc", "token <token> is bad"),
    ("--api-key s3cr3tvalue --port 8000", "s3cr3t", "--api-key <token> --port 8000"),
    ("--api-key one two three --port 8", "two", "--api-key <token> --port 8"),
    ("--api-key=s3cr3t", "s3cr3t", "--api-key=<token>"),
    ("--hf-token abcdef", "abcdef", "--hf-token <token>"),
    ("{'api_key': ['k1', 'k2'], 'port': 8}", "k1", "{'api_key': <token>, 'port': 8}"),
    ('{"api_key": "abc"}', "abc", '{"api_key": "<token>"}'),
    ("Authorization: Bearer abc.def-123", "abc.def", "Authorization: Bearer <token>"),
    ("WANDB_API_KEY=0123456789abcdef", "0123", "WANDB_API_KEY=<token>"),
    ("RAY_AUTH_TOKEN=00ff00ff", "00ff", "RAY_AUTH_TOKEN=<token>"),
    ("auth_token: 1a2b3c4d5e6f", "1a2b", "auth_token: <token>"),
    ("password=hunter2", "hunter2", "password=<token>"),
    ("AWS_SECRET_ACCESS_KEY=abc/def", "abc/def", "AWS_SECRET_ACCESS_KEY=<token>"),
    ("key sk-proj-abcdef0123456789 end", "sk-proj", "key <token> end"),
    ("said correct-horse-battery twice", "horse", "said <token> twice"),
    ("http://me:pw@host.example/x", "pw", "http://<token>@host.example/x"),
    ("write to kat.h@example.org now", "kat.h", "write to <email> now"),
    (f"card {_GPU} is", "1f0e2d3c", "card GPU-1 is"),
    ("CUDA_VISIBLE_DEVICES=GPU-1f0e2d3c", "1f0e", "CUDA_VISIBLE_DEVICES=GPU-1"),
    ("Serial Number                     : 1320123456789", "1320", None),
    ("link/ether d8:bb:c1:02:03:04 brd", "d8:bb", "link/ether <mac-1> brd"),
    ("tcp://192.168.178.21:4567", "192.168", "tcp://<ip-1>:4567"),
    ("node 84.12.7.200 died", "84.12", "node <ip-1> died"),
    ("version of the node at 10.1.2.3", "10.1.2.3", "version of the node at <ip-1>"),
    ("inet6 fe80::1234:abcd:1%eth0 scope", "fe80", "inet6 <ip-1>%eth0 scope"),
    ("addr 2001:db8:0:1:2:3:4:5/64", "2001:", "addr <ip-1>/64"),
    ("/home/katharina/models/x", "katharina", "~/models/x"),
    ("/home/otherone/models/x", "otherone", "/home/<user>/models/x"),
    ("/data/katharina_models", "katharina", "/data/<user>_models"),
    ("/mnt/Katharina", "Katharina", "/mnt/<user>"),
    ("katharina@kat-box:~$ ls", "kat-box", "<user>@<host>:~$ ls"),
    ("kat-box.example.lan:12:34 [0] NCCL INFO x", "kat-box", "<host>:12:34 [0] NCCL INFO x"),
    ("other:12:34 [0] NCCL INFO x", "other", "<host>:12:34 [0] NCCL INFO x"),
    ("Nov 30 01:02:03 other kernel: NVRM: x", "other", "Nov 30 01:02:03 <host> kernel: NVRM: x"),
    ("Request cmpl-1 details: prompt: 'dear otherone', prompt_token_ids: [1]", "dear", None),
    ("Generated response cmpl-1: output: 'dear x', finish_reason: stop", "dear", None),
    ("Generated response c (streaming) details: output_token_ids: [12]", "12", None),
    ("/mnt/home/otherone/x", "otherone", "/mnt/home/<user>/x"),
    ("/var/home/otherone/x", "otherone", "/var/home/<user>/x"),
    ("/mnt/c/Users/otherone/x", "otherone", "/mnt/c/Users/<user>/x"),
    ('"C:\\\\Users\\\\otherone\\\\x"', "otherone", '"C:\\\\Users\\\\<user>\\\\x"'),
    ("/run/media/otherone/disk", "otherone", "/run/media/<user>/disk"),
    ("?dir=%2Fhome%2Fotherone%2Fx", "otherone", "?dir=%2Fhome%2F<user>%2Fx"),
    ("otherone@theirbox:~/x$ nvidia-smi", "theirbox", "<user>@<host>:~/x$ nvidia-smi"),
    ("(base) otherone@theirbox:~$ ls", "otherone", "(base) <user>@<host>:~$ ls"),
    ("[otherone@theirbox x]$ ls", "theirbox", "[<user>@<host> x]$ ls"),
    ("root@theirbox:/# ls", "theirbox", "root@<host>:/# ls"),
    ("Linux theirbox 6.8.0-45-generic #45-Ubuntu SMP", "their", None),
    ("2026-11-30T01:02:03.4+00:00 theirbox kernel: NVRM: x", "their", None),
    ("2026-11-30T01:02:03+0100 theirbox systemd[1]: x", "their", None),
    ("Mon 2026-11-30 01:02:03 UTC theirbox kernel: x", "their", None),
    ("https://h.example/x?token=abc123&y=1", "abc123", "https://h.example/x?token=<token>&y=1"),
    ("https://h.example/x?sig=ab%3D&se=2", "ab%3D", "https://h.example/x?sig=<token>&se=2"),
    ("/x?X-Amz-Credential=AKIAX%2F1&X-Amz-Signature=0a1b", "0a1b", None),
    ("/x?X-Amz-Security-Token=IQoJb3", "IQoJ", "/x?X-Amz-Security-Token=<token>"),
    ("GET /v1/models?api_key=abcdef HTTP/1.1", "abcdef", None),
    ("Authorization: token abcdefgh", "abcdefgh", "Authorization: token <token>"),
    ("{'authorization': 'abc123def'}", "abc123", "{'authorization': '<token>'}"),
    ("Cookie: session=abc; other=def", "def", "Cookie: <token>"),
    ('"set-cookie": "session=abc"', "abc", '"set-cookie": "<token>"'),
    ("['--api-key', 's3cr3t', 'more', '--port']", "more", "['--api-key', '<token>', '--port']"),
    ('["--hf-token", "s3cr3t"]', "s3cr3t", '["--hf-token", "<token>"]'),
    ("--ray-token s3cr3t", "s3cr3t", "--ray-token <token>"),
    ("environ({'MY_TOKEN': 'abc123'})", "abc123", "environ({'MY_TOKEN': '<token>'})"),
    ('{\\"api_key\\": \\"s3cr3t\\"}', "s3cr3t", None),
    ("PGPASSWORD=hunter2", "hunter2", "PGPASSWORD=<token>"),
    ("passphrase: hunter2", "hunter2", "passphrase: <token>"),
    ("private_key=hunter2", "hunter2", "private_key=<token>"),
    ("token 0123456789abcdef0123456789abcdef", "0123", "token <token>"),
    ("AIza" + "Sy0123456789abcdefghijklmnopqrstu", "AIza", "<token>"),
    ("npm" + "_0123456789abcdefghijklmnop", "npm", "<token>"),
    ("r8" + "_0123456789abcdefghijklmnop", "r8", "<token>"),
    ("gsk" + "_0123456789abcdefghijklmnop", "gsk", "<token>"),
    ("dckr_pat" + "_0123456789abcdefghij", "dckr", "<token>"),
    ("ASIA" + "0123456789ABCDEF", "ASIA", "<token>"),
    ("https://hooks.slack.com/services/T0/B0/xyz", "xyz", None),
    ('"serial": "AB12345"', "AB12", '"serial": "<serial-1>"'),
    ("S/N: AB12345", "AB12", "S/N: <serial-1>"),
    ("ID_SERIAL_SHORT=S3EV0K1", "S3EV", "ID_SERIAL_SHORT=<serial-1>"),
    ("GPU PDI                : 0x1234567890abcdef", "1234", None),
    ("machine-id 0123456789abcdef0123456789abcdef", "0123", "machine-id <serial-1>"),
    ("disk wwn-0x5000c500a1b2c3d4 nvme-eui.0025385b71b1a2b3", "c500", None),
    ("disk nvme-eui.0025385b71b1a2b3", "385b", "disk nvme-eui.<serial-1>"),
    ("uuid=0123456789abcdef0123456789abcdef", "0123", "uuid=<uuid-1>"),
    ("ip-10-0-0-5.ec2.internal", "10-0", "<ip-1>.ec2.internal"),
    (
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n-----END OPENSSH PRIVATE KEY-----\nx",
        "b3Bl",
        "<private key>\nx",
    ),
]


@pytest.mark.parametrize(("text", "gone", "becomes"), _SECRETS)
def test_each_kind_of_secret(text: str, gone: str, becomes: str | None) -> None:
    redactor = Redactor(_ME)
    found = redactor.redact(text)
    assert gone not in found
    assert becomes in (None, found)
    assert redactor.counts.total() >= 1
    assert redactor.redact(found) == found


_HARMLESS = [
    "Driver Version: 610.43.02 CUDA Version: 13.2",
    "nvidia-cudnn-cu13==9.15.1.9 nvidia-curand-cu13 10.4.0.35 cudnn 9.10.2.21",
    "nvidia_curand_cu12-10.3.9.90-py3-none-manylinux2014_x86_64.whl",
    "Mozilla/5.0 Chrome/120.0.0.0 version 10.2.3.4",
    "http://127.0.0.1:8000 0.0.0.0:8000 [::]:8000 ::1 255.255.255.0",
    "0000:01:00.0 00000000:0A:00.0 at 12:34:56 and 01:42:38,123",
    "Xid (PCI:0000:09:00): 154, GPU recovery action",
    "torch.ops.vllm::all_reduce c10::Error std::vector",
    "max_tokens=16, num_tokens: 123, eos_token: 2, pad_token='<pad>', 378,112 tokens",
    "RAY_AUTH_TOKEN_PATH=/run/x RAY_AUTH_MODE=token token mode",
    "series 981d3fbbfa19, tree 01fcf93ea0e9 sha256:" + "a1" * 32,
    "GPU-Util 0% GPU0 GPU 00000000:01:00.0 GPU-1 GPU-2",
    "--api-key None",
    "api_key=None {'api_key': []}",
    "Serial Number : N/A",
    "serialized_model_v2 serial8250: ttyS0 serial_port_1234567",
    "/home/<user>/x <host>:1:2 [0] NCCL INFO <ip-1> <token>",
    "Motherboard Gigabyte bare metal bandwidth compatible user guest",
    "link/ether 00:00:00:00:00:00",
    "authorization: required, passwordless ssh, cookie cutter, a private key",
    "2026-11-30T01:02:03Z INFO engine: up",
    "2026-11-30 01:02:03,123 INFO worker.py:12 -- up",
    "Linux version 6.8.0-45-generic (x) #45",
    "--max-num-batched-tokens 8192 --tokenizer x --skip-tokenizer-init",
    "GET /v1/models?page=2&sort=up HTTP/1.1",
    "https://example.org/docs/home/page at 16:9 wwn eui. machine-id",
    "uuid is 8 long; serial: no",
    "mail@example and 3@home: 5 of 10 #2",
]


@pytest.mark.parametrize("text", _HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    redactor = Redactor(_ME)
    assert redactor.redact(text) == text
    assert redactor.counts == {}


@pytest.mark.parametrize("name", ["b", "a", "me", "box", "memory", "ray", "user", "token", "ip"])
def test_a_name_that_is_a_letter_or_a_word_costs_no_text(name: str) -> None:
    me = Identity(users=(name,), homes=(f"/home/{name}",), hosts=(name,))
    text = "\n".join(_HARMLESS)
    assert _redacted(text, me) == text
    assert _redacted(f"/home/{name}/x", me) == "~/x"
    assert _redacted(f"/media/{name}/disk USER={name} uid=1000({name})", me) == (
        "/media/<user>/disk USER=<user> uid=1000(<user>)"
    )
    assert _redacted(f"{name}@{name}:~", me) == "<user>@<host>:~"
    # Where our own JSON, variables and addresses name them.
    if name != "user":  # then it is the key, too
        told = f'{{"user": "{name}", "hostname": "{name}"}}'
        assert _redacted(told, me) == '{"user": "<user>", "hostname": "<host>"}'
        assert _redacted(f"{{'USER': '{name}'}}", me) == "{'USER': '<user>'}"
    assert (
        _redacted(f"http://{name}:8000/v1 tcp://{name}", me) == "http://<host>:8000/v1 tcp://<host>"
    )
    assert _redacted(f"uid=7({name}) gid=7({name}) groups=7({name}),27(sudo)", me) == (
        "uid=7(<user>) gid=7(<user>) groups=7(<user>),27(sudo)"
    )
    assert _redacted(f"/mnt/{name}/x /home//{name}/x", me) == "/mnt/<user>/x /home//<user>/x"


def test_the_same_thing_has_the_same_replacement() -> None:
    other = _GPU.replace("1f0e", "2f0e")
    redactor = Redactor()
    assert redactor.redact(f"{_GPU} {other} {_GPU}") == "GPU-1 GPU-2 GPU-1"
    assert redactor.redact(f"again {other.upper().replace('GPU', 'GPU')}") == "again GPU-2"
    assert redactor.redact("10.0.0.1 10.0.0.2 10.0.0.1") == "<ip-1> <ip-2> <ip-1>"
    assert redactor.counts == {"card's identity": 4, "network address": 3}


def test_root_is_nobody_in_particular() -> None:
    assert _redacted("run as root", Identity(users=("root",))) == "run as root"


def test_the_secrets_of_the_environment_are_known() -> None:
    told = {"HOME": "/h/x", "USER": "u", "MY_API_KEY": "abcdefgh", "RAY_AUTH_TOKEN_PATH": "/some/x"}
    identity = identity_of_this_process(told)
    assert identity.secrets == ("abcdefgh",)
    assert "/h/x" in identity.homes and "u" in identity.users
    assert all(identity.hosts)


# Any mixture of harmless pieces and secrets: the secrets go, the pieces stay.
_WORD = st.text("abcdefgklmnoprstuwxyz", min_size=1, max_size=9)
_PIECE = st.one_of(
    _WORD,
    st.sampled_from(_HARMLESS[:8]),
    st.builds("{}.{}.{}".format, *[st.integers(0, 700)] * 3),
    st.builds("{:04x}:{:02x}:{:02x}.0".format, *[st.integers(0, 255)] * 3),
    st.builds("{}={}".format, _WORD, st.integers(0, 10**6)),
)
_HEX = "0123456789abcdef"
_SECRET = st.one_of(
    st.text("ABCDEFGHIJKLMNOPabcdefghijklm0123456789", min_size=16, max_size=40).map("hf_".__add__),
    st.builds("10.{}.{}.{}".format, *[st.integers(0, 255)] * 3),
    st.builds("{}.{}.{}.{}".format, st.integers(128, 223), *[st.integers(1, 255)] * 3),
    st.builds(
        "GPU-{}-{}-{}-{}-{}".format,
        *[st.text(_HEX, min_size=n, max_size=n) for n in (8, 4, 4, 4, 12)],
    ),
    st.lists(st.integers(1, 254), min_size=6, max_size=6).map(
        lambda numbers: ":".join(f"{n:02x}" for n in numbers)
    ),
    st.builds("{}@{}.org".format, _WORD, _WORD),
    st.just("katharina"),
    st.just("kat-box"),
    st.just("correct-horse-battery"),
    st.just("/home/katharina"),
)


@settings(deadline=None)
@given(st.lists(_PIECE, max_size=12))
def test_any_text_without_secrets_is_unchanged(pieces: list[str]) -> None:
    text = " ".join(pieces)
    assert _redacted(text) == text


@settings(deadline=None)
@given(st.lists(st.tuples(_PIECE, _SECRET, st.sampled_from([" ", "\n", ", ", " (", " '"]))))
def test_no_secret_survives(parts: list[tuple[str, str, str]]) -> None:
    text = "".join(f"{piece}{gap}{secret}\n" for piece, secret, gap in parts)
    redactor = Redactor(_ME)
    found = redactor.redact(text)
    for _, secret, _ in parts:
        assert secret not in found
    for piece, _, _ in parts:
        assert piece in found
    assert redactor.redact(found) == found


@settings(deadline=None)
@given(st.text())
def test_any_text_can_be_redacted_and_twice_is_once(text: str) -> None:
    redactor = Redactor(_ME)
    once = redactor.redact(text)
    assert redactor.redact(once) == once


def test_a_real_log_keeps_its_facts() -> None:
    log = Path(__file__).parents[1] / "engine_log" / "logs" / "two-cards-streamed.txt"
    text = log.read_text()
    found = _redacted(text)
    assert re.sub(r"^<host>:", "box:", found, flags=re.MULTILINE) == text
