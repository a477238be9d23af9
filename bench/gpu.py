"""The first benchmark for a machine with a GPU: several ranks over NCCL, inside the sandbox.

    .venv/bin/python -m bench.gpu --json

On whatever GPUs there are, in at most 8 minutes; each part that fails, or for which there is no
time, says so, and the others go on. `--only` names some parts. Without a GPU it prints that it was
not run.

1. NCCL in the sandbox, with 2 and 4 ranks on one device (`NCCL_MULTI_RANK_GPU_ENABLE`, NCCL 2.30):
   adapters and all weights of a Llama of 1.2 billion random weights, 20 steps, with FSDP2 and with
   DeepSpeed's ZeRO-3; adapters with one rank beside it. NCCL's log says which transport it took,
   and over which interface ranks met.
2. With 1 and 2 ranks a second run, and one that is killed after half of its steps and continues:
   the bytes of what they leave.
3. Peak memory of a rank, as a share of what the plan expects.
4. Tokens a second of one process, compared with TRL and TRL with Liger (`bench.trainer`).
5. Attention of one layer of an 8B, forward and backward: the one that trains beside PyTorch's
   `varlen_attn`, by FlashAttention and by cuDNN. Milliseconds, whether two runs have the same
   bytes, and how far their gradients are apart. It has not run yet.
6. The row of `tunery/ml/kernels.py` that the device trains with: 4. and 5. are what fills it.
"""

import argparse
import asyncio
import inspect
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from msgspec.structs import replace

from bench.measures import print_figures
from bench.ranks import DOCUMENTS_PER_ROW, Run, devices_here, of_ranks, run
from bench.shapes import write_base
from bench.trainer import documents, hyper_parameters, written_spec
from schemas.model import Base
from schemas.training import Adaptation, EngineName
from services.gateway.models.base_folders import describe
from services.trainer.adapters.processes import Walls
from tunery.confinement.confined import Confinement
from tunery.ml.base import MODEL_ID
from tunery.plan.memory import CONTEXT_BYTES, memory_bytes
from tunery.plan.micro_batches import shared_among
from tunery.ranks.launching import VISIBLE
from tunery.work.events import Checkpointed, Finished, StepCompleted
from tunery.work.spec import ResumeCandidate, TrainSpec

LIMIT_S: Final = 480
STEPS: Final = 20
ROWS: Final = 4


@dataclass(frozen=True)
class GpuRun:
    """A training of which there are figures."""

    adaptation: Adaptation
    ranks: int
    engine: EngineName = "fsdp2"
    repeats: bool = False  # a second run and one that is killed show the bytes of what they leave

    @property
    def name(self) -> str:
        """The beginning of its figures' names."""
        of_zero = "_zero3" if self.engine == "deepspeed" else ""
        return f"{self.adaptation}_{self.ranks}{of_zero}"


KINDS: Final = (
    GpuRun("lora", 1, repeats=True),
    GpuRun("lora", 2, repeats=True),
    GpuRun("full", 2, repeats=True),
    GpuRun("full", 2, "deepspeed"),
    GpuRun("lora", 4),
    GpuRun("full", 4),
)
TRAINER: Final = "trainer"
ATTENTION: Final = "attention"
KERNELS: Final = "kernels"
PARTS: Final = (*(kind.name for kind in KINDS), TRAINER, ATTENTION, KERNELS)
DOCUMENT_TOKENS: Final = 512
DOCUMENTS: Final = 16
HEADS, KEY_HEADS, HEAD_WIDTH = 32, 8, 128  # of an 8B
PASSES: Final = 20
NOT_RUN: Final = "not run"
# What NCCL's log says of the way between two ranks, and of the interface that they met over.
TRANSPORT: Final = re.compile(r"via (P2P\S*|SHM\S*|NET\S*)")
INTERFACE: Final = re.compile(r"NET/Socket : Using \[0\](\w+)|Bootstrap: Using (\w+)")
NCCL: Final = {"NCCL_DEBUG": "INFO", "NCCL_MULTI_RANK_GPU_ENABLE": "1"}


@dataclass
class Measurement:
    """Figures that are made one after the other until the time is over."""

    limit_s: float
    clock: Callable[[], float] = time.monotonic  # seconds that only go forward
    figures: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ends_s = self.clock() + self.limit_s

    def part(self, name: str, work: Callable[[float], Mapping[str, Any]]) -> None:
        """Add the figures of a part; `work` gets the seconds that are left."""
        left_s = self._ends_s - self.clock()
        if left_s <= 0:
            self.figures[name] = f"{NOT_RUN}: the {self.limit_s:.0f} s are over"
            return
        try:
            self.figures |= {f"{name}_{key}": value for key, value in work(left_s).items()}
        except Exception as error:  # the others say more of a machine than the first that fails
            self.figures[name] = f"failed: {type(error).__name__}: {str(error)[-500:]}"


def of_log(errors: str) -> dict[str, Any]:
    """Transports and interfaces that NCCL's log names."""
    interfaces = {name for pair in INTERFACE.findall(errors) for name in pair if name}
    return {
        "transports": sorted(set(TRANSPORT.findall(errors))),
        "interfaces": sorted(interfaces),
    }


def sha256_of(done: Run) -> str:
    """Hash the trained weights. Raises RuntimeError where the training has failed."""
    finished = [event for event in done.events if isinstance(event, Finished)]
    if done.status or not finished:
        raise RuntimeError(f"status {done.status}: {done.events[-1:]} {done.errors[-800:]}")
    return finished[0].adapter_sha256


def train(spec: TrainSpec, folder: Path, device: str, limit_s: float, kill_after: int = 0) -> Run:
    """One training in the sandbox, whose ranks all compute on one device."""
    walls = Walls(Confinement("require"), has_devices=True)
    working = run(spec, folder, {VISIBLE: device, **NCCL}, walls=walls, kill_after=kill_after)
    return asyncio.run(asyncio.wait_for(working, limit_s))


def compared(
    spec: TrainSpec,
    folder: Path,
    device: str,
    expected_bytes: int,
    left_s: float,
    *,
    repeats: bool,
) -> dict[str, Any]:
    """Compare a run's memory with the plan; where it repeats, run it again, and kill one."""
    ends_s = time.monotonic() + left_s

    def trained(name: str, kill_after: int = 0, **changes: Any) -> Run:
        own = replace(spec, out_dir=str(folder / name / "out"), **changes)
        return train(own, folder / name, device, ends_s - time.monotonic(), kill_after)

    first = trained("first")
    sha256 = sha256_of(first)
    steps = [event for event in first.events if isinstance(event, StepCompleted)]
    peak = CONTEXT_BYTES + max(step.memory_bytes or 0 for step in steps)
    figures: dict[str, Any] = of_log(first.errors) if spec.ranks > 1 else {}
    figures |= {
        "tokens_s": first.tokens_s,
        "peak_gb": round(peak / 1e9, 2),
        "peak_by_plan": round(peak / expected_bytes, 2),
    }
    if not repeats:
        return figures
    figures["repeats"] = sha256_of(trained("second")) == sha256
    killed = trained("killed", kill_after=STEPS // 2)
    saved = [event for event in killed.events if isinstance(event, Checkpointed)][-1]
    resume = (ResumeCandidate(dir=saved.dir, manifest_sha256=saved.manifest_sha256),)
    figures["resumes_to_the_byte"] = sha256_of(trained("resumed", resume=resume)) == sha256
    return figures


def of_kind(base: Base, dest: Path, device: str, kind: GpuRun, left_s: float) -> dict[str, Any]:
    """Figures of one of `KINDS`, whose ranks all compute on one device."""
    ranks, is_whole = kind.ranks, kind.adaptation == "full"
    hyper = replace(
        hyper_parameters(STEPS, "bf16"),
        batch_size=ROWS,
        adaptation=kind.adaptation,
        engine=kind.engine if ranks > 1 else "single",
        shard_weights=is_whole,
        rank=0 if is_whole else 16,
    )
    shared = shared_among(hyper, ranks)
    assert shared is not None, "a step has a row for each rank"
    with TemporaryDirectory() as name:
        folder = Path(name)
        rows = documents(DOCUMENTS_PER_ROW * ROWS * (STEPS + 1))
        spec = written_spec(dest, hyper, folder, rows)
        # The UUID of the device would be that of rank 0 alone: VISIBLE names it.
        spec = replace(
            of_ranks(spec, hyper, [device] * ranks), devices=(), checkpoint_every_steps=STEPS // 4
        )
        expected = memory_bytes(base, shared, "cuda", ranks=ranks)
        return compared(spec, folder, device, expected, left_s, repeats=kind.repeats)


def beside_trl(dest: Path, left_s: float) -> dict[str, Any]:
    """Figures of `bench.trainer`: one process compared with TRL, and TRL with Liger."""
    command = [sys.executable, "-m", "bench.trainer", "--json", "--no-evaluation", "--steps", "20"]
    command += ["--precision", "bf16", "--batch", "8", "--capacity", "2048", "--base", str(dest)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=left_s)
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def kernels(_left_s: float) -> dict[str, Any]:
    """The row of `tunery/ml/kernels.py` that this GPU trains with; 4. and 5. fill it."""
    import torch

    from tunery.ml.kernels import kernels_of

    gpu = torch.device("cuda")
    capability = ".".join(map(str, torch.cuda.get_device_capability(gpu)))
    return {"capability": capability} | asdict(kernels_of(gpu))


def attention(_left_s: float) -> dict[str, Any]:
    """Figures of attention over documents of one batch, by each implementation."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.varlen import varlen_attn

    from tunery.ml.attention import Joined, attend_at_once

    gpu = torch.device("cuda")
    cuts = torch.arange(DOCUMENTS + 1, dtype=torch.int32, device=gpu) * DOCUMENT_TOKENS
    shapes = [(1, heads, DOCUMENTS * DOCUMENT_TOKENS, HEAD_WIDTH) for heads in (HEADS, KEY_HEADS)]
    torch.manual_seed(1)
    options: dict[str, Any] = {"dtype": torch.bfloat16, "device": gpu, "requires_grad": True}
    query, key, value = (torch.randn(shapes[at], **options) for at in (0, 1, 1))
    takes_groups = "enable_gqa" in inspect.signature(varlen_attn).parameters
    settings: dict[str, Any] = {"enable_gqa": True} if takes_groups else {}

    def by_torch() -> Any:
        heads = [each[0].transpose(0, 1) for each in (query, key, value)]
        lengths = (cuts, cuts, DOCUMENT_TOKENS, DOCUMENT_TOKENS)
        attend: Callable[..., Any] = varlen_attn
        return attend(*heads, *lengths, window_size=(-1, 0), **settings)[None]

    def by_us() -> Any:
        return attend_at_once(query, key, value, Joined(cuts, DOCUMENT_TOKENS), None)

    def passed(attention_of: Callable[[], Any]) -> list[Any]:
        output = attention_of()
        gradients = torch.autograd.grad(output, (query, key, value), output.detach())
        torch.cuda.synchronize()
        return [output.detach(), *gradients]

    ways: dict[str, tuple[Callable[[], Any], SDPBackend]] = {
        "ours": (by_us, SDPBackend.FLASH_ATTENTION),
        "varlen_flash": (by_torch, SDPBackend.FLASH_ATTENTION),
        "varlen_cudnn": (by_torch, SDPBackend.CUDNN_ATTENTION),
    }
    figures: dict[str, Any] = {}
    ours: list[Any] = []
    torch.use_deterministic_algorithms(True)  # as ours asks for by itself
    for name, (attention_of, backend) in ways.items():
        try:
            with sdpa_kernel(backend):
                first, second = passed(attention_of), passed(attention_of)
                began_s = time.monotonic()
                for _ in range(PASSES):
                    passed(attention_of)
        except RuntimeError as error:  # of a version or device without it
            figures[name] = f"failed: {error}"[:300]
            continue
        ours = ours or first
        figures |= {
            f"{name}_ms": round(1_000 * (time.monotonic() - began_s) / PASSES, 3),
            f"{name}_repeats": all(map(torch.equal, first, second)),
            f"{name}_from_ours": max(
                float((tensor - own).abs().max()) for tensor, own in zip(first, ours, strict=True)
            ),
        }
    return figures


def measure(
    device: str, limit_s: float, parts: Collection[str], tokenizer: Path | None
) -> dict[str, Any]:
    """Figures of one device. tokenizer: as of `write_base`"""
    measurement = Measurement(limit_s)
    with TemporaryDirectory() as name:
        dest = write_base("llama_1b", Path(name) / "base", tokenizer)
        base = describe(MODEL_ID, dest, "")
        for kind in KINDS:
            if kind.name in parts:
                measurement.part(kind.name, partial(of_kind, base, dest, device, kind))
        if TRAINER in parts:
            measurement.part(TRAINER, partial(beside_trl, dest))
        if ATTENTION in parts:
            measurement.part(ATTENTION, attention)
        if KERNELS in parts:
            measurement.part(KERNELS, kernels)
    return measurement.figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    parser.add_argument("--tokenizer", type=Path, help="a model's folder; else the bundled model")
    arguments = parser.parse_args()
    devices = devices_here()
    figures: dict[str, Any] = {"gpu": f"{NOT_RUN}: this machine has 0 GPUs"}
    if devices:
        figures = {
            "gpu": devices[0],
            **measure(devices[0], arguments.limit_s, arguments.only, arguments.tokenizer),
        }
    print_figures(figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
