"""Plans are pure, so they are tested as a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.launch.arguments import has_option, pieces_of, switch_of, value_of
from rig.launch.plan import ServeOptions, ServePlan, plan_serve

OPTIONS = ServeOptions(model="m", python=Path("/e/bin/python"), log_folder=Path("/l"), port=8000)


def plan(*extra: str, inherited: dict[str, str] | None = None, **changes: object) -> ServePlan:
    options = replace(OPTIONS, extra_arguments=extra, **changes)  # type: ignore[arg-type]
    return plan_serve(options, inherited or {})


@pytest.mark.parametrize(
    "arguments, value",
    [
        (["--tensor-parallel-size", "2"], "2"),
        (["--tensor-parallel-size=2"], "2"),
        (["--tensor_parallel_size=2"], "2"),
        (["-tp", "2"], "2"),
        (["-tp=2"], "2"),
        (["--tensor-parallel", "2"], "2"),
        (["-tp", "4", "--tensor-parallel-size", "2"], "2"),
        (["--tensor", "2"], None),
        (["--token-parallel-size", "2"], None),
        ([], None),
    ],
)
def test_vllms_spellings_of_an_option(arguments: list[str], value: str | None) -> None:
    assert value_of(arguments, "--tensor-parallel-size", "-tp") == value


def test_a_json_option_given_piece_by_piece_counts_as_given() -> None:
    assert has_option(["--limit-mm-per-prompt.video", "1"], "--limit-mm-per-prompt")
    assert has_option(["--no-enforce-eager"], "--enforce-eager")
    assert not has_option(["--limit"], "--limit-mm-per-prompt")


@pytest.mark.parametrize(
    "arguments, on",
    [
        ([], None),
        (["--enable-prefix-caching"], True),
        (["--no-enable-prefix-caching"], False),
        (["--disable-prefix-caching"], False),
        (["--no_enable_prefix_caching", "--enable-prefix-caching"], True),
        (["--enable-prompt-embeds"], None),
    ],
)
def test_a_switch_is_as_its_last_word_says(arguments: list[str], on: bool | None) -> None:
    assert switch_of(arguments, "--enable-prefix-caching") is on


@pytest.mark.parametrize(
    "arguments, value",
    [
        (["--limit-mm-per-prompt", '{"video":0,"image":2}'], {"video": 0, "image": 2}),
        (
            ["--limit-mm-per-prompt.video=0", "--limit_mm_per_prompt.image", "2"],
            {"video": 0, "image": 2},
        ),
        (["--limit-mm-per-prompt", "x"], {}),
        (["--limit-mm-per-prompt"], {}),
    ],
)
def test_json_is_read_whole_or_piece_by_piece(
    arguments: list[str], value: dict[str, object]
) -> None:
    assert pieces_of(arguments, "--limit-mm-per-prompt") == value


def test_gpu_defaults_are_the_safe_ones_before_p2p_is_proven() -> None:
    made = plan()
    assert made.engine_environment["NCCL_P2P_DISABLE"] == "1"
    assert made.engine_environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert made.engine_environment["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert "--disable-custom-all-reduce" in made.vllm_arguments
    assert "--enforce-eager" not in made.vllm_arguments
    assert "VLLM_CPU_KVCACHE_SPACE" not in made.engine_environment


def test_a_rehearsal_sets_nothing_of_a_gpu_and_downloads_nothing() -> None:
    made = plan(rehearse=True)
    assert made.engine_environment["HF_HUB_OFFLINE"] == "1"
    assert made.engine_environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert "--enforce-eager" in made.vllm_arguments
    assert not [name for name in made.engine_environment if name.startswith(("CUDA_", "PYTORCH_"))]


def test_every_variable_and_argument_has_a_reason() -> None:
    for made in (plan(), plan(rehearse=True), plan(executor="mp")):
        subjects = {reason.subject for reason in made.reasons if reason.why}
        assert set(made.engine_environment) <= subjects
        assert {word for word in made.vllm_arguments if word.startswith("--")} <= subjects
        assert set(made.ray_command[2:]) <= subjects


@pytest.mark.parametrize(
    "extra, devices, tensor",
    [
        ((), 4, 4),
        (("-tp", "2"), 2, 2),
        (("-tp=2", "-pp", "2"), 4, 2),
        (("--pipeline_parallel_size=2",), 8, 4),
    ],
)
def test_ray_gets_as_many_devices_as_the_engine_needs(
    extra: tuple[str, ...], devices: int, tensor: int
) -> None:
    made = plan(*extra)
    assert made.devices == made.ranks == devices
    assert made.tensor_parallel_size == tensor
    assert f"--num-gpus={devices}" in made.ray_command


@pytest.mark.parametrize("option", ["-dp", "--data-parallel-size", "-pcp"])
def test_ranks_that_could_not_be_proven_are_refused_before_a_start(option: str) -> None:
    with pytest.raises(RigError, match="not supported") as refused:
        plan(option, "2")
    assert "one server for each part" in str(refused.value)
    assert plan(option, "1").devices == 4


def test_the_users_argument_stands_alone_and_is_said() -> None:
    made = plan("-tp", "2", "--port=9000", "--limit-mm-per-prompt.video", "1")
    assert "--tensor-parallel-size" not in made.vllm_arguments
    assert made.vllm_arguments.count("--port") == 0
    assert "--limit-mm-per-prompt" not in made.vllm_arguments
    assert made.port == 9000
    assert made.vllm_arguments[-5:] == (
        *("-tp", "2", "--port=9000", "--limit-mm-per-prompt.video", "1"),
    )
    assert made.conflicts == ("your --tensor-parallel-size 2 wins over this rig's 4",)


def test_the_users_environment_wins_where_it_is_only_a_default() -> None:
    made = plan(inherited={"NCCL_P2P_DISABLE": "0", "PYTORCH_ALLOC_CONF": "x"})
    assert "NCCL_P2P_DISABLE" not in made.engine_environment
    assert "PYTORCH_CUDA_ALLOC_CONF" not in made.engine_environment
    assert made.conflicts == ("NCCL_P2P_DISABLE=0 from your environment wins over 1",)


def test_the_users_environment_cannot_open_the_box_or_name_another_cluster() -> None:
    inherited = {
        "RAY_ADDRESS": "10.0.0.1:6379",
        "RAY_AUTH_MODE": "disabled",
        "RAY_AUTH_TOKEN": "secret",
        "RAY_DEDUP_LOGS": "0",
        "VLLM_HOST_IP": "10.0.0.2",
    }
    made = plan(inherited=inherited)
    assert made.removed_variables == ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN")
    for environment in (made.ray_environment, made.engine_environment):
        assert environment["RAY_AUTH_MODE"] == "token"
        assert environment["VLLM_HOST_IP"] == "127.0.0.1"
    assert any("VLLM_HOST_IP" in sentence for sentence in made.conflicts)
    assert "secret" not in repr(made)


def test_expandable_segments_are_left_out_where_they_break_the_engine() -> None:
    for extra in (("--kv-transfer-config", "{}"), ("--no-disable-custom-all-reduce",)):
        assert "PYTORCH_CUDA_ALLOC_CONF" not in plan(*extra).engine_environment


def test_without_ray_there_is_no_ray() -> None:
    for made in (plan(executor="mp"), plan("--distributed-executor-backend", "mp")):
        assert made.ray_command == ()
        assert not [name for name in made.engine_environment if name.startswith("RAY_")]


def test_opening_the_server_to_others_without_a_key_is_said() -> None:
    assert any("--api-key" in sentence for sentence in plan("--host", "0.0.0.0").conflicts)
    assert not plan("--host", "0.0.0.0", "--api-key", "k").conflicts
    assert plan("--host", "0.0.0.0").host == "0.0.0.0"


def test_markers_are_filled_in_but_never_in_the_users_arguments() -> None:
    made = plan("--served-model-name", "$RIG_PORT", port=None)
    filled = made.filled({"$RIG_PORT": "1234", "$RIG_RUN": "/run"})
    assert filled.port == 1234
    assert filled.vllm_arguments[filled.vllm_arguments.index("--port") + 1] == "1234"
    assert filled.vllm_arguments[-1] == "$RIG_PORT"
    assert filled.engine_environment["RAY_AUTH_TOKEN_PATH"] == "/run/token"


@pytest.mark.parametrize(
    "extra",
    [
        ("-tp", "two"),
        ("-tp", "0"),
        ("--port", "-5"),
        ("--port",),
        ("--uds", "/s"),
        ("--distributed-executor-backend", "uni"),
    ],
)
def test_what_cannot_be_served_is_refused(extra: tuple[str, ...]) -> None:
    with pytest.raises(RigError):
        plan(*extra)


@pytest.mark.parametrize("port", ["65536", "99999", "0"])
def test_a_port_that_does_not_exist_is_refused(port: str) -> None:
    with pytest.raises(RigError) as caught:
        plan("--port", port)
    assert caught.value.next_step == "give a whole number, 1 to 65535"


@pytest.mark.parametrize("name", ["--host", "--hos", "--ho"])
@pytest.mark.parametrize("joined", [True, False])
def test_a_shortened_host_opens_the_box_as_the_whole_word_does(name: str, joined: bool) -> None:
    made = plan(*([f"{name}=0.0.0.0"] if joined else [name, "0.0.0.0"]))
    assert made.host == "0.0.0.0"
    assert "--host" not in made.vllm_arguments or name == "--host"
    assert any("--api-key" in sentence for sentence in made.conflicts)


def test_a_shortened_port_is_the_port() -> None:
    assert plan("--por", "18001").port == plan("--por=18001").port == 18001
    assert plan("--po", "18001").port == 8000  # vLLM refuses it: --pooler-config begins so as well


def test_ranks_without_ray_on_cpus_do_not_need_a_numa_node_each() -> None:
    name = "VLLM_CPU_OMP_THREADS_BIND"
    assert plan(rehearse=True, executor="mp").engine_environment[name] == "nobind"
    assert name not in plan("-tp", "1", rehearse=True, executor="mp").engine_environment
    assert name not in plan(rehearse=True).engine_environment
    assert name not in plan(executor="mp").engine_environment


def test_what_ranks_without_ray_leave_in_tmpdir_goes_with_the_run() -> None:
    made = plan(executor="mp", inherited={"TMPDIR": "/elsewhere"})
    assert made.engine_environment["TMPDIR"] == "$RIG_RUN"
    assert "TMPDIR" not in plan().engine_environment


def test_markers_in_the_model_or_in_a_value_are_not_filled_in() -> None:
    made = replace(plan(), options=replace(OPTIONS, model="x$RIG_RUN"))
    filled = made.filled({"$RIG_RUN": "/run", "$PATH": "/a:$RIG_RUN"})
    assert filled.vllm_arguments[0] == filled.engine_command[2] == "x$RIG_RUN"
    assert filled.engine_environment["PATH"] == "/e/bin:/a:$RIG_RUN"
    longer = replace(made, ray_environment={"X": "$RIG_RUNNER"}).filled({"$RIG_RUN": "/run"})
    assert longer.ray_environment["X"] == "$RIG_RUNNER"
    with pytest.raises(RigError, match="name of a variable of these tools"):
        plan_serve(replace(OPTIONS, python=Path("/e$PATH/bin/python")), {})


def test_a_model_is_needed() -> None:
    with pytest.raises(RigError, match="no model"):
        plan_serve(replace(OPTIONS, model="--port"), {})
