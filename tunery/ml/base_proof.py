"""Prove what jobs can do with a base model: `python -m tunery.ml.base_proof FOLDER SHARD`.

It takes the way of a job, with packed rows of the base's own template: documents of a packed row
are compared with documents alone, a LoRA step and a step of every weight are trained, each layer is
tried as the place of an adapter, and an answer is written. It computes in fp32 on processors: with
the base's own weights where they are few, else with a small random model of the same family and
settings. What holds there holds for the base, but for its figures.

What its template was shown to do comes as JSON on standard input, and a `ProofResult` goes to
standard output. Memory is bounded here, and time by the caller.
"""

import importlib.metadata
import io
import json
import os
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout, suppress
from functools import partial
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import msgspec
import torch
from msgspec import Struct
from safetensors import safe_open
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from transformers import AutoConfig, AutoTokenizer

from schemas.model import Base, BaseProof, TemplateProof
from schemas.records import build_from
from schemas.training import Adaptation
from schemas.units import PPM
from tunery.ml.attention import causal_of, use_document_attention
from tunery.ml.base_check import MESSAGE, Problem
from tunery.ml.device import LIBRARIES, peak_memory_bytes
from tunery.ml.events import EventWriter
from tunery.ml.fine_tuning import fine_tune
from tunery.ml.generation import answers, render
from tunery.ml.language import auto_class, experts, is_of_language
from tunery.ml.loss import prove_packing
from tunery.ml.model import load_base, load_model
from tunery.ml.packed import PackedRows, read_rows
from tunery.ml.small_models import SMALL_SCALE, NotSmall, scale_matrices, small_model
from tunery.plan.memory import layers_bytes
from tunery.platform.blobs.base_files import CONFIG, hash_base, text_config, weight_files
from tunery.platform.blobs.base_shapes import shape_of
from tunery.work.exits import WorkError
from tunery.work.spec import CHECKPOINTS_KEPT_MIN, Hyper, TrainSpec

OWN_MAX: Final = 150_000_000  # parameters; a step of every weight takes 16 bytes for each
SMALL_MAX: Final = 100_000_000  # parameters of a small random model, most of them of its tokens
MEMORY_BYTES_MAX: Final = 8 * 2**30
LENGTH_MAX: Final = 4_096  # tokens of a packed row
NEW_TOKENS: Final = 4
KEPT_TOKENS: Final = 256  # of a document whose activations are counted
CPU: Final = torch.device("cpu")
REASON_MAX: Final = 500  # characters of a library's reason
OTHER_BASE: Final = "Take a base of another family, or other versions of the libraries."
HYPER: Final = Hyper(
    n_epochs=1,
    batch_size=1,
    learning_rate=1e-3,
    rank=4,
    alpha=8,
    dropout=0.0,
    max_length=LENGTH_MAX,
    warmup=0.0,
    weight_decay=0.0,
    seed=7,
    max_steps=1,
)


class ProofResult(Struct, frozen=True):
    """Result of the proof of a base model."""

    proof: BaseProof | None = None  # None: nothing could be tried
    problems: tuple[Problem, ...] = ()  # reasons why no job can train on it
    notes: tuple[str, ...] = ()  # reasons of what it cannot do, in the words of the libraries


class _Trial(NamedTuple):
    """The model that stands for the base, and the rows that it is tried with."""

    folder: Path
    sha256: str
    shard: str
    work: Path  # what is written goes here
    tokenizer: Any

    def spec(self, hyper: Hyper) -> TrainSpec:
        """The spec of a training of one step."""
        return TrainSpec(
            base_dir=str(self.folder),
            base_id=self.folder.name,
            base_sha256=self.sha256,
            train_shards=(self.shard,),
            out_dir=str(self.work / hyper.adaptation),
            hyper=hyper,
            precision="fp32",
            threads=torch.get_num_threads(),
            keep_checkpoints=CHECKPOINTS_KEPT_MIN,
        )

    def compare_packed(self) -> None:
        """Compute documents packed and alone. Raises where they differ."""
        model = self._base()
        use_document_attention(model, CPU)
        prove_packing(model, self._rows(model), CPU, exact=True)

    def train(self, hyper: Hyper) -> None:
        """Take one step as a job does, with the packing proof of jobs. Raises as `fine_tune`."""
        fine_tune(self.spec(hyper), EventWriter(io.BytesIO(), 0.0), lambda: False)

    def write_answer(self) -> None:
        """Write a short answer."""
        with torch.no_grad():
            prompt = render(self.tokenizer, MESSAGE)
            answers(self._base().eval(), self.tokenizer, [prompt], new_tokens_max=NEW_TOKENS)

    def kept_ppm(self) -> int:
        """Memory that layers keep of a document for the backward pass, as a ratio to the plan's."""
        model = load_model(self.spec(HYPER), HYPER, "fp32", CPU)
        weights = {
            each.untyped_storage().data_ptr() for each in (*model.parameters(), *model.buffers())
        }
        kept: dict[int, Tensor] = {}  # by storage; a tensor here stays, so that none is taken twice

        def count(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                kept[storage.data_ptr()] = tensor
            return tensor

        ids = self._rows(model).rows[0].input_ids.repeat(KEPT_TOKENS)[None, :KEPT_TOKENS]
        with saved_tensors_hooks(count, lambda tensor: tensor):
            causal_of(model).get_decoder()(input_ids=ids.long())
        config = text_config(json.loads((self.folder / CONFIG).read_bytes()))
        base = Base(
            base_id=self.folder.name,
            sha256=self.sha256,
            path=str(self.folder),
            parameters=sum(each.numel() for each in model.parameters()),
            context_length=LENGTH_MAX,
            licence="",
            hidden_size=config["hidden_size"],
            **shape_of(config),
        )
        counted = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
        return PPM * counted // layers_bytes(base, KEPT_TOKENS)

    def targets(self) -> Iterator[str]:
        """Names of layers, and of weights of experts, that PEFT adapts, each tried by itself."""
        model = self._base()
        names = {
            path.rpartition(".")[2]
            for path, module in model.named_modules()
            if is_of_language(model, path) and any(True for _ in module.parameters(recurse=False))
        }
        for name in sorted({*names, *experts(model)}):
            hyper = msgspec.structs.replace(HYPER, target_modules=(name,))
            with suppress(Exception):  # reasons of all kinds: for a norm, and for unknown layers
                load_model(self.spec(hyper), hyper, "fp32", CPU)
                yield name

    def _base(self) -> Any:
        return load_base(str(self.folder), torch.float32, CPU, four_bits=False)

    def _rows(self, model: Any) -> PackedRows:
        vocabulary = model.config.get_text_config().vocab_size
        return read_rows((self.shard,), vocabulary=vocabulary)


def prove(folder: Path, shard: Path, template: TemplateProof, work: Path) -> ProofResult:
    """Try a base model with the packed rows of a shard.

    template: what its template was shown to do
    work: an empty folder for what is written

    Raises Exception where the files are not those of a base model; `base_check` names that.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    notes: list[str] = []
    # 1. The model that is tried.
    parameters = sum(map(_parameters_of, weight_files(folder)))
    model_dir = folder
    if parameters > OWN_MAX:
        try:
            model_dir = _write_small(folder, tokenizer, work / "model")
        except NotSmall as error:
            note = f"it is too large to be tried here, and no small model of it was made: {error}"
            return ProofResult(notes=(*notes, note))
    trial = _Trial(model_dir, hash_base(model_dir), str(shard), work, tokenizer)
    # 2. Packing, training and answering, each by itself.
    if (unpacked := _reason_of(trial.compare_packed)) is not None:
        notes.append(f"rows are not packed: {unpacked}")
    reasons: dict[Adaptation, str | None] = {}
    peaks: dict[Adaptation, int] = {}  # of this process so far; the larger step comes second
    for adaptation in ("lora", "full"):
        asked = {"adaptation": adaptation, "packing": unpacked is None}
        hyper = msgspec.structs.replace(HYPER, **asked)
        reasons[adaptation] = _reason_of(partial(trial.train, hyper))
        peaks[adaptation] = peak_memory_bytes(CPU) if reasons[adaptation] is None else 0
    kept_ppm = 0
    with suppress(Exception):  # of any library: then plans go by what other families keep
        kept_ppm = trial.kept_ppm()
    unanswered = _reason_of(trial.write_answer)
    notes += [f"{how} does not train: {why}" for how, why in reasons.items() if why is not None]
    problems = []
    if None not in reasons.values():
        text = "no step could be trained: " + "; ".join(map(str, reasons.values()))
        problems.append(Problem("does_not_train", text, OTHER_BASE))
    if unanswered is not None and model_dir == folder:
        text = f"no answer could be written: {unanswered}"
        problems.append(Problem("does_not_answer", text, OTHER_BASE))
    elif unanswered is not None:  # its two layers may be of kinds that have no cache of their own
        notes.append(f"a small model of it writes no answer: {unanswered}")
    proof = build_from(
        BaseProof,
        template,
        weights="own" if model_dir == folder else "random",
        adaptations=tuple(how for how, why in reasons.items() if why is None),
        packs=unpacked is None,
        targets=tuple(trial.targets()) if reasons["lora"] is None else (),
        libraries={name: importlib.metadata.version(name) for name in LIBRARIES},
        weights_bytes=sum(file.stat().st_size for file in weight_files(folder)),
        step_tokens=max(read_rows((str(shard),), vocabulary=len(tokenizer)).row_tokens),
        lora_bytes=peaks["lora"],
        full_bytes=peaks["full"],
        kept_ppm=kept_ppm,
    )
    return ProofResult(proof, tuple(problems), tuple(notes))


def _parameters_of(file: Path) -> int:
    with safe_open(file, "pt") as tensors:
        names = tensors.keys()
        return sum(prod(tensors.get_slice(name).get_shape()) for name in names)


def _write_small(folder: Path, tokenizer: Any, dest: Path) -> Path:
    """Write a small random model of a base's family and settings. Raises `NotSmall`."""
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    make = auto_class(config).from_config
    model = small_model(config, tokenizer, make, parameters_max=SMALL_MAX)
    scale_matrices(model, SMALL_SCALE)
    model.save_pretrained(dest)
    tokenizer.save_pretrained(dest)
    return dest


def _reason_of(attempt: Callable[[], object]) -> str | None:
    """Return the message with which an attempt fails; None: it succeeds."""
    try:
        attempt()
    except MemoryError:
        raise
    except WorkError as error:
        return error.message[:REASON_MAX]
    except Exception as error:  # of any library
        return f"{type(error).__name__}: {error}"[:REASON_MAX]
    return None


def main(arguments: Sequence[str]) -> None:
    """Print the proof of a folder as JSON."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # small things, which compute the same on processors
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    template = msgspec.json.decode(sys.stdin.buffer.read(), type=TemplateProof)
    folder, shard = map(Path, arguments)
    with TemporaryDirectory() as work, redirect_stdout(sys.stderr):  # libraries print
        result = prove(folder, shard, template, Path(work))
    print(msgspec.json.encode(result).decode())


if __name__ == "__main__":
    main(sys.argv[1:])
