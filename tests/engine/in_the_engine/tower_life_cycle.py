# mypy: disable-error-code="import-not-found,misc"
"""What a tower that streams goes through between start and end, in one engine process.

    python tower_life_cycle.py MODEL FOLDER [CASE...]

Runs with the engine's Python. Each case makes the engines it needs, in this process, and says
what it found; the last line of standard output is JSON: case -> facts, or the error that ended
it. `right` and `equal` mean bit for bit.

All linear layers are left as they were loaded, in every engine: the CPU's kernels would repack
those of a resident tower, and then add in another order.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the model is at hand
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",  # callables for `collective_rpc`
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
}

import torch
from safetensors.torch import load_file, save_file
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization import register_quantization_config
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig
from vllm.model_executor.offloader import NoopOffloader, get_offloader
from vllm.model_executor.offloader.towers import resting
from vllm.model_executor.offloader.towers.offloader import TowerOffloader

MODEL, FOLDER = Path(sys.argv[1]), Path(sys.argv[2])
SLOTS = 3
CASES: dict[str, Callable[[], dict[str, Any]]] = {}
OPTIONS: dict[str, Any] = {
    "enforce_eager": True,
    "dtype": "float32",
    "max_model_len": 512,
    "max_num_batched_tokens": 512,
    "max_num_seqs": 2,
    "num_gpu_blocks_override": 32,  # to fill a larger cache takes longer than all else
    "limit_mm_per_prompt": {"video": 0},
    "mm_processor_cache_gb": 0,
    "enable_prefix_caching": False,
    "disable_log_stats": True,
}
STREAMED: dict[str, Any] = {"offload_towers": True, "offload_tower_slots": SLOTS}


def case(function: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    CASES[function.__name__] = function
    return function


def leave_linears_unpacked() -> None:
    init = LinearBase.__init__

    def init_unpacked(self: LinearBase, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self._cpu_skip_gemm_dispatch = True

    LinearBase.__init__ = init_unpacked


class Engine:
    """An engine in this process."""

    def __init__(self, model: Path = MODEL, **options: Any) -> None:
        self.llm = LLM(str(model), **(OPTIONS | options))
        self.offloader = get_offloader()
        (self.model,) = self.llm.apply_model(lambda model: model)

    @property
    def visual(self) -> torch.nn.Module:
        return self.model.visual

    def encode(self, seed: int = 0) -> torch.Tensor:
        """Encode an image of noise, past all caches."""
        generator = torch.Generator().manual_seed(seed)
        pixels = torch.randn(64, 3 * 2 * 16 * 16, generator=generator)
        with torch.inference_mode():
            images = self.model.embed_multimodal(
                pixel_values=pixels, image_grid_thw=torch.tensor([[1, 8, 8]])
            )
        return torch.cat(list(images)).clone()

    def answer(self, **options: Any) -> list[Any]:
        """Tokens and logprobs of an answer about an image."""
        from PIL import Image

        picture = Image.new("RGB", (96, 64), (200, 30, 90))
        parts = [{"type": "image_pil", "image_pil": picture}, {"type": "text", "text": "What?"}]
        return self.say(parts, **options)

    def say(self, parts: Any, **options: Any) -> list[Any]:
        sampling = SamplingParams(temperature=0, max_tokens=6, logprobs=0)
        asked = [{"role": "user", "content": parts}]
        said = self.llm.chat(asked, sampling, use_tqdm=False, **options)[0].outputs[0]
        return [list(said.token_ids), [next(iter(d.values())).logprob for d in said.logprobs]]

    def forget(self) -> None:
        self.llm.llm_engine.engine_core.engine_core.reset_mm_cache()
        self.llm.llm_engine.engine_core.engine_core.reset_encoder_cache()

    def on_worker(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        return self.llm.collective_rpc(method, args=args, kwargs=kwargs)[0]

    def reload(self, model: Path) -> None:
        self.on_worker("reload_weights", weights_path=str(model))
        self.forget()

    def close(self) -> None:
        self.llm.llm_engine.engine_core.shutdown()
        del self.llm, self.model, self.offloader
        gc.collect()

    def hooked(self) -> int:
        """How many modules have a forward of their own."""
        return sum("forward" in module.__dict__ for module in self.model.modules())


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(torch.equal(one, other))


def both(folder: Path = MODEL, **options: Any) -> dict[str, Any]:
    """Compare an engine whose tower streams with one whose tower is resident."""
    resident = Engine(folder, **options)
    rights = [resident.encode(seed) for seed in range(3)]
    answer = resident.answer()
    resident.close()
    streamed = Engine(folder, **options, **STREAMED)
    found = {
        "units": [len(s.units) for s in streamed.offloader.streamers],
        "equal": [equal(streamed.encode(seed), right) for seed, right in enumerate(rights)],
        "same_answer": streamed.answer() == answer,
        "differ": not equal(rights[0], rights[1]),
        "entries": sum(c["entries"] for c in counters(streamed).values()),
        "dtype": str(streamed.visual.blocks[1].mlp.linear_fc1.weight.dtype),
        "contiguous": streamed.visual.blocks[1].mlp.linear_fc1.weight.is_contiguous(),
    }
    streamed.close()
    return found


def counters(engine: Engine) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = engine.on_worker("get_tower_offload_counters")
    return found


def other_model() -> Path:
    """The model with other weights in its tower."""
    folder = FOLDER / "other"
    if not folder.exists():
        shutil.copytree(MODEL, folder)
        file = folder / "model.safetensors"
        generator = torch.Generator().manual_seed(7)
        weights = {
            name: weight + 0.05 * torch.randn(weight.shape, generator=generator)
            if "visual." in name
            else weight
            for name, weight in load_file(file).items()
        }
        save_file(weights, file, metadata={"format": "pt"})
    return folder


@contextmanager
def without_notice() -> Iterator[None]:
    """Let no offloader learn of changes."""
    with ExitStack() as undo:
        for name in ("weights_changing", "weights_changed"):
            undo.enter_context(patch.object(TowerOffloader, name, lambda self: None))
        yield


@case
def reload() -> dict[str, Any]:
    other = other_model()
    fresh = Engine(other)
    rights, answer = [fresh.encode(seed) for seed in range(2)], fresh.answer()
    fresh.close()
    found: dict[str, Any] = {}
    for name, gib in {"all stream": 0.0, "some are resident": 2 / 1024}.items():
        engine = Engine(**STREAMED, offload_tower_resident_gb=gib)
        before = engine.encode()
        engine.reload(other)
        found[name] = {
            "units": len(engine.offloader.streamers[0].units),
            "changed": not equal(before, rights[0]),
            "right": [equal(engine.encode(seed), right) for seed, right in enumerate(rights)],
            "right_answer": engine.answer() == answer,
        }
        engine.reload(MODEL)
        found[name]["right_again"] = equal(engine.encode(), before)
        engine.close()
    engine = Engine(**STREAMED)
    engine.encode()
    with without_notice():
        engine.reload(other)
        found["right_without_notice"] = equal(engine.encode(), rights[0])
    engine.on_worker("weights_changed")
    found["right_after_notice"] = equal(engine.encode(), rights[0])
    engine.close()
    return found


def scale_tower(worker: Any, factor: float, announced: bool, noted: bool) -> None:
    """Update weights in place, blocks and stem, by a power of two: exactly."""
    if announced:
        worker.weights_changing()
    for parameter in worker.get_model().visual.parameters():
        parameter.data.mul_(factor)
    if noted:
        worker.weights_changed()


@case
def update_in_place() -> dict[str, Any]:
    resident = Engine()
    before = resident.encode()
    resident.on_worker(scale_tower, 2.0, False, False)
    after = resident.encode()
    resident.close()
    engine = Engine(**STREAMED)
    found: dict[str, Any] = {"differ": not equal(before, after)}
    found["before"] = equal(engine.encode(), before)
    engine.on_worker(scale_tower, 2.0, False, True)
    found["only noted"] = equal(engine.encode(), after)
    engine.on_worker(scale_tower, 0.5, True, True)
    found["announced and noted"] = equal(engine.encode(), before)
    engine.on_worker(scale_tower, 2.0, False, False)
    found["without a word"] = equal(engine.encode(), after)
    engine.close()
    return found


@case
def dummy_weights() -> dict[str, Any]:
    return both(load_format="dummy")


@case
def sharded_state() -> dict[str, Any]:
    streamed = Engine(**STREAMED)
    streamed.encode()  # the ring is warm, and so is the order
    resident = Engine()
    right = resident.encode()
    saved = {}
    for name, engine in {"streamed": streamed, "resident": resident}.items():
        folder = FOLDER / f"sharded by {name}"
        shutil.copytree(MODEL, folder, ignore=shutil.ignore_patterns("*.safetensors"))
        engine.on_worker("save_sharded_state", path=str(folder), pattern=None, max_size=None)
        files = sorted(folder.glob("*.safetensors"))
        saved[name] = {k: v for file in files for k, v in load_file(file).items()}
    streamed.close()
    resident.close()
    one, other = saved["streamed"], saved["resident"]
    by_streamed, by_resident = FOLDER / "sharded by streamed", FOLDER / "sharded by resident"
    encodes = []
    for folder, options in ((by_streamed, {}), (by_resident, STREAMED), (by_streamed, STREAMED)):
        engine = Engine(folder, load_format="sharded_state", **options)
        encodes.append(equal(engine.encode(), right))
        engine.close()
    return {
        "names": one.keys() == other.keys(),
        "of_tower": sum(name.startswith("visual.blocks.") for name in one),
        "values": all(equal(one[name], other[name]) for name in other),
        "right": encodes,
    }


class TransposedMethod(UnquantizedLinearMethod):
    """Weights in 8 bits, turned round after loading, as fp8 kernels want them."""

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        weight = layer.weight.data
        scale = weight.abs().amax() / 448
        small = (weight / scale).to(torch.float8_e4m3fn)
        del layer.weight
        layer.weight = torch.nn.Parameter(small.t(), requires_grad=False)
        layer.weight_scale = torch.nn.Parameter(scale, requires_grad=False)

    def apply(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        weight = layer.weight.to(x.dtype).t() * layer.weight_scale
        return torch.nn.functional.linear(x, weight, bias)


@register_quantization_config("transposed")
class TransposedConfig(QuantizationConfig):
    """Quantises all linears by `TransposedMethod`."""

    def get_name(self) -> str:
        return "transposed"

    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        return [torch.float32]

    @classmethod
    def get_min_capability(cls) -> int:
        return 0

    @staticmethod
    def get_config_filenames() -> list[str]:
        return []

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> TransposedConfig:
        return cls()

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        return TransposedMethod() if isinstance(layer, LinearBase) else None


@case
def quantised_tower() -> dict[str, Any]:
    return both(quantization="transposed")


@case
def transformers_backend() -> dict[str, Any]:
    return both_by_answer(model_impl="transformers")


def both_by_answer(**options: Any) -> dict[str, Any]:
    resident = Engine(**options)
    right = [resident.answer(), resident.answer()]
    kind = type(resident.model).__name__
    resident.close()
    streamed = Engine(**options, **STREAMED)
    found = {
        "class": kind,
        "units": [len(s.units) for s in streamed.offloader.streamers],
        "same_answer": [streamed.answer() == answer for answer in right],
        "counters": counters(streamed),
        "meta": sum(p.is_meta for p in streamed.model.parameters()),
    }
    streamed.close()
    return found


@case
def post_init_twice() -> dict[str, Any]:
    engine = Engine(**STREAMED)
    before, hooked = engine.encode(), engine.hooked()
    (tower,) = engine.offloader.towers
    engine.offloader.post_init()
    engine.offloader.post_init()
    found = {
        "same_tower": engine.offloader.towers == [tower],
        "hooked": [hooked, engine.hooked(), len(tower.streamer.units), len(tower.on_demand.units)],
        "right": equal(engine.encode(), before),
    }
    engine.close()
    return found


@case
def two_engines() -> dict[str, Any]:
    other = other_model()
    first = Engine(**STREAMED)
    right = first.encode()
    second = Engine(other, offload_towers=True, offload_tower_slots=2)
    other_right = second.encode()
    found: dict[str, Any] = {
        "differ": not equal(right, other_right),
        "beside": [equal(first.encode(), right), equal(second.encode(), other_right)],
    }
    # Each engine's notices must reach its own towers, not those of the newest engine.
    first.reload(other)
    found["reload_of_the_first"] = equal(first.encode(), other_right)
    found["second_after_it"] = equal(second.encode(), other_right)
    first.reload(MODEL)
    third = Engine()
    found |= {
        "hooked_without_flag": third.hooked(),
        "offloader_without_flag": type(get_offloader()) is NoopOffloader,
        "right_without_flag": equal(third.encode(), right),
        "counters_without_flag": counters(third),
    }
    first.encode()
    first.reload(other)
    found["reload_beside_one_without_flag"] = equal(first.encode(), other_right)
    # The end of any engine ends what all of a process share.
    for engine in (third, second, first):
        engine.close()
    return found


@case
def end_of_an_engine() -> dict[str, Any]:
    import weakref

    engine = Engine(**STREAMED)
    engine.encode()
    tower = weakref.ref(engine.visual)
    engine.close()
    another = Engine()
    gc.collect()
    found = {"tower_is_gone": tower() is None}
    another.close()
    return found


@case
def failing_encode() -> dict[str, Any]:
    engine = Engine(**STREAMED)
    right = [engine.encode(seed) for seed in range(2)]
    answer = engine.answer()
    found: dict[str, Any] = {}
    for inside in ("blocks.0.mlp", "blocks.2.attn", "blocks.3.norm2", "merger.norm"):

        def fail(*_: object) -> None:
            raise RuntimeError("a bad image")

        handle = engine.visual.get_submodule(inside).register_forward_pre_hook(fail)
        said = ""
        try:
            engine.encode()
        except RuntimeError as error:
            said = str(error)
        handle.remove()
        found[inside] = {
            "said": said,
            "at_rest": not engine.offloader._rebound(),
            "right": [equal(engine.encode(seed), rest) for seed, rest in enumerate(right)],
        }
    found["right_answer"] = engine.answer() == answer
    engine.close()
    return found


def adapter() -> Path:
    """A LoRA adapter for the linears of the tower, and for nothing else."""
    folder = FOLDER / "adapter"
    if folder.exists():
        return folder
    folder.mkdir()
    weights, rank = load_file(MODEL / "model.safetensors"), 4
    generator = torch.Generator().manual_seed(3)
    lora = {}
    for name, weight in weights.items():
        module = name.removesuffix(".weight")
        ends = ("attn.qkv", "attn.proj", "linear_fc1", "linear_fc2")
        if "visual." in name and name.endswith(".weight") and module.endswith(ends):
            out, inner = weight.shape
            base = f"base_model.model.{module}"
            for key, shape in {"lora_A": (rank, inner), "lora_B": (out, rank)}.items():
                lora[f"{base}.{key}.weight"] = 0.2 * torch.randn(shape, generator=generator)
    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 2 * rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": ["qkv", "proj", "linear_fc1", "linear_fc2"],
        "task_type": "CAUSAL_LM",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(lora, folder / "adapter_model.safetensors")
    return folder


@case
def lora_on_the_tower() -> dict[str, Any]:
    from vllm.lora.layers import BaseLayerWithLoRA

    options: dict[str, Any] = {
        "enable_lora": True,
        "enable_tower_connector_lora": True,
        "max_lora_rank": 8,
        "max_loras": 1,
    }
    request = LoRARequest("tower", 1, str(adapter()))
    resident = Engine(**options)
    plain, right = resident.answer(), resident.answer(lora_request=request)
    resident.close()
    streamed = Engine(**options, **STREAMED)
    wrapped = [m for m in streamed.visual.modules() if isinstance(m, BaseLayerWithLoRA)]
    found = {
        "wrapped": len(wrapped),
        "units": [len(s.units) for s in streamed.offloader.streamers],
        "differ": plain != right,
        "same_plain": streamed.answer() == plain,
        "same_lora": streamed.answer(lora_request=request) == right,
        "same_plain_again": streamed.answer() == plain,
        "entries": sum(c["entries"] for c in counters(streamed).values()),
    }
    streamed.close()
    return found


def text_model() -> Path:
    """A model without towers; its weights are made up when it is loaded."""
    folder = FOLDER / "text"
    if not folder.exists():
        shutil.copytree(MODEL, folder, ignore=shutil.ignore_patterns("*.safetensors", "proc*"))
        config = json.loads((MODEL / "config.json").read_text())
        text = config["text_config"] | {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "dtype": "float32",
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        }
        (folder / "config.json").write_text(json.dumps(text))
    return folder


def refusal(folder: Path = MODEL, **options: Any) -> str:
    """The last line of what a user sees."""
    try:
        engine = Engine(folder, **options)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip()}"
    engine.close()
    return ""


@case
def bad_input() -> dict[str, Any]:
    found = {
        "no slots": refusal(**(STREAMED | {"offload_tower_slots": 0})),
        "negative slots": refusal(**(STREAMED | {"offload_tower_slots": -2})),
        "negative budget": refusal(**STREAMED, offload_tower_resident_gb=-1.0),
        "slots without towers": refusal(offload_tower_slots=4),
        "text only": refusal(text_model(), load_format="dummy", **STREAMED),
        "uva backend": refusal(offload_backend="uva", **STREAMED),
        "more slots than units": refusal(**(STREAMED | {"offload_tower_slots": 99})),
        "nothing but prefetch": refusal(offload_backend="prefetch"),
        "compiled encoder": refusal(
            **STREAMED, compilation_config={"compile_mm_encoder": True}, enforce_eager=False
        ),
    }
    allocate = resting.allocate

    def no_memory(nbytes: int, pin: bool) -> Any:
        raise OSError(12, f"cannot map {nbytes} bytes: Cannot allocate memory")

    resting.allocate = no_memory
    found["no host memory"] = refusal(**STREAMED)
    resting.allocate = allocate
    return found


@case
def all_resident() -> dict[str, Any]:
    engine = Engine(**STREAMED, offload_tower_resident_gb=5.0)
    found = {
        "streamers": len(engine.offloader.streamers),
        "hooked": engine.hooked(),
        "counters": counters(engine),
    }
    before = engine.encode()
    engine.reload(other_model())
    found["changed"] = not equal(before, engine.encode())
    engine.close()
    return found


@case
def all_modalities_off() -> dict[str, Any]:
    text = [{"type": "text", "text": "Is anyone there?"}]
    resident = Engine()
    right = resident.say(text)
    resident.close()
    engine = Engine(**STREAMED, limit_mm_per_prompt={"image": 0, "video": 0})
    found = {
        "streamers": len(engine.offloader.streamers),
        "hooked": engine.hooked(),
        "same_answer": engine.say(text) == right,
    }
    engine.close()
    return found


def main() -> None:
    leave_linears_unpacked()
    chosen = sys.argv[3:] or list(CASES)
    found: dict[str, Any] = {}
    for name in chosen:
        print(f"== {name}", flush=True)
        start = time.monotonic()
        try:
            found[name] = CASES[name]()
        except Exception as error:
            traceback.print_exc()
            found[name] = {"error": f"{type(error).__name__}: {error}"}
        print(f"   {time.monotonic() - start:.1f} s", flush=True)
    sys.stdout.flush()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
