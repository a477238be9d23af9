"""LoRA on a base that stays in the machine's memory, beside one that the device keeps.

    .venv/bin/python -m bench.offload --rows 1 4 8 --json

A Llama with random weights is written as files, and trained for some steps with recompute: its
layers on the device, and streamed. `gradients` is a hash of all gradients of the adapter: equal
where the bits are. `copy_gb_s` is how fast layers alone pass, without a computation that could hide
it. `--device-gb` leaves the device so much: with less than the base has, only streaming fits.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch

from tunery.ml.offload import StreamedLayers
from tunery.ml.ranks import digest_of

STEPS: Final = 3  # the first is not counted
VOCABULARY: Final = 32_000


def write_base(folder: Path, layers: int, hidden: int, inner: int) -> None:
    """A random Llama in bf16, made on the accelerator where there is one."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=max(2, hidden // 128),
        num_key_value_heads=max(2, hidden // 512),
        max_position_embeddings=16_384,
    )
    torch.manual_seed(7)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)


def load(folder: Path, device: torch.device, *, offload: bool) -> tuple[Any, StreamedLayers | None]:
    """The base with an adapter of rank 16, as a training has it with recompute."""
    import peft
    import transformers

    base = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    base = base if offload else base.to(device)
    torch.manual_seed(11)
    config = peft.LoraConfig(r=16, target_modules="all-linear", init_lora_weights=False)
    model = peft.get_peft_model(base, config, autocast_adapter_dtype=False)
    streamed = StreamedLayers(base, device) if offload else None
    model.to(device)
    model.train()
    base.gradient_checkpointing_enable({"use_reentrant": False})
    return model, streamed


def step(model: Any, rows: int, tokens: int, device: torch.device) -> None:
    """Forward and backward pass of a micro-batch, with a loss on one token of eight."""
    ids = (torch.arange(rows * tokens, device=device) * 31 % VOCABULARY).reshape(rows, tokens)
    labelled = torch.arange(7, tokens, 8, device=device)
    model.zero_grad()
    logits = model(input_ids=ids, logits_to_keep=labelled, use_cache=False).logits
    (logits.float().logsumexp(-1) - logits[..., 5].float()).mean().backward()


def timed_s(work: Callable[[], object], device: torch.device) -> float:
    """How long work takes, with what it asks the device for."""
    began_s = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began_s


def measure(folder: Path, rows: int, tokens: int, *, offload: bool) -> dict[str, Any]:
    """Some steps of one kind; `failed` says what it ran out of."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    figures: dict[str, Any] = {"rows": rows, "tokens": tokens, "offload": offload}
    try:
        model, streamed = load(folder, device, offload=offload)
        took_s = [timed_s(lambda: step(model, rows, tokens, device), device) for _ in range(STEPS)]
    except torch.cuda.OutOfMemoryError as error:
        return figures | {"failed": str(error).partition(". ")[0]}
    grads = {name: w.grad for name, w in model.named_parameters() if w.grad is not None}
    figures["tokens_s"] = round(rows * tokens / min(took_s[1:]), 1)
    figures["gradients"] = digest_of(grads).hex()[:16]
    if device.type == "cuda":
        figures["peak_gb"] = round(torch.cuda.max_memory_reserved(device) / 1e9, 2)
    if streamed is not None:
        passing_s = min(timed_s(streamed.pass_all, device) for _ in range(2))
        figures["copy_gb_s"] = round(streamed.kept_bytes / passing_s / 1e9, 2)
    return figures


def main() -> None:
    """Measure both kinds with each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1])
    parser.add_argument("--tokens", type=int, default=2_048)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=4_096)
    parser.add_argument("--inner", type=int, default=14_336)
    parser.add_argument("--device-gb", type=float, help="memory of the device that may be used")
    parser.add_argument("--threads", type=int, default=4, help="of the processor, as a slot's")
    parser.add_argument("--json", action="store_true", help="one line for each measurement")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_base(folder, asked.layers, asked.hidden, asked.inner)
        if asked.device_gb and torch.cuda.is_available():
            _, has = torch.cuda.mem_get_info()
            torch.cuda.set_per_process_memory_fraction(asked.device_gb * 1e9 / has)
        for rows in asked.rows:
            for offload in (False, True):
                gc.collect()  # hooks of the model before refer to it
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
                figures = measure(folder, rows, asked.tokens, offload=offload)
                if asked.json:
                    print(json.dumps(figures), flush=True)
                else:
                    print(", ".join(f"{name} {value}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
