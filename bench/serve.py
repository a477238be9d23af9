"""The engine compared with plain generate of transformers and PEFT: four adapters, one stream and
eight.

    .venv/bin/python -m bench.serve --json

Both sides answer the same questions with the same weights, in the same precision, without sampling.
The engine is asked over its socket, with the settings of `tunery up`: each model has half of the
machine's threads. Plain generate has all of them. It answers eight questions twice: one after the
other, and all in one batch in which each row has its own adapter. A first answer of each model is
not counted, and speeds are those of tokens that were really written. Last, the API of a whole stack
answers beside llama.cpp's own server (`bench.proxied`).
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
from msgspec import Struct

from bench import proxied
from bench.measures import print_figures
from bench.shapes import bundled_base
from schemas.training import ADAPTER_FILES, BlobFile
from services.engine.adapters.llama import LlamaEngine
from services.engine.adapters.weights import ConvertedWeights, run_script
from services.engine.host import EngineHost
from services.engine.loaded_models import LoadedModels
from services.engine.meter import AnswerMeter
from services.engine.settings import EngineSettings
from services.gateway.chat.engine_socket import SocketEngine
from tunery.ml.base import MODEL_ID
from tunery.platform.blobs.base_files import base_files, hash_base
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.work.engine import (
    AnswerEnded,
    EngineModel,
    Question,
    QuestionRefused,
    Sampling,
    TextAdded,
)

ADAPTERS: Final = 4
STREAMS: Final = 8
RANK: Final = 16
CONTEXT_TOKENS: Final = 2_048
GOAL: Final = 2.0
ASKED: Final = (
    "Write a long story about a lighthouse keeper.",
    "Explain how a bicycle stays upright, in many sentences.",
    "List the planets and say something about each.",
    "Describe a market in the morning, as in a novel.",
    "How is bread made? Describe each step.",
    "Tell me the history of the printing press.",
    "What should a traveller know about deserts?",
    "Explain photosynthesis to a child, at length.",
)


class StreamAnswer(Struct, frozen=True):
    """One answer. first_ms: from when all were asked to its first text."""

    text: str
    tokens: int
    first_ms: float


class Round(Struct, frozen=True):
    """Answers to questions that were asked at the same time. wall_s: until the last one's end."""

    answers: list[StreamAnswer]
    wall_s: float

    @property
    def tokens_s(self) -> float:
        return sum(answer.tokens for answer in self.answers) / self.wall_s

    @property
    def first_ms(self) -> float:
        return median(answer.first_ms for answer in self.answers)


class PlainRounds(Struct, frozen=True):
    """Results of plain generate: one stream, eight one after the other, and eight in one batch."""

    single: Round
    in_turn: Round
    batched: Round


def adapter_of(stream: int) -> int:
    return stream % ADAPTERS


def write_models(folder: Path, base: Path, precision: str) -> None:
    """`base`, in this precision, and `adapter-N` with random weights that change the answers."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype)
    model.save_pretrained(folder / "base")
    AutoTokenizer.from_pretrained(base).save_pretrained(folder / "base")
    options = LoraConfig(
        r=RANK, lora_alpha=RANK, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    tuned: Any = get_peft_model(model, options, autocast_adapter_dtype=False)
    for number in range(ADAPTERS):
        torch.manual_seed(number)
        for name, weight in tuned.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, std=0.01)
        tuned.save_pretrained(folder / f"adapter-{number}")


class Plain:
    """A model with all adapters, in nothing but transformers and PEFT."""

    def __init__(self, folder: Path, threads: int, precision: str) -> None:
        import torch
        from peft import PeftModel
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(threads)
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        base = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=dtype)
        self._tokenizer = AutoTokenizer.from_pretrained(folder / "base", padding_side="left")
        self._model: Any = PeftModel.from_pretrained(base, folder / "adapter-0", adapter_name="0")
        for number in range(1, ADAPTERS):
            self._model.load_adapter(folder / f"adapter-{number}", adapter_name=str(number))
        self._model.eval()

    def in_turn(self, streams: Sequence[int], tokens: int) -> Round:
        """Answers one after the other."""
        began_s = time.monotonic()
        answers = []
        for stream in streams:
            self._model.set_adapter(str(adapter_of(stream)))
            answers += self._write([stream], tokens, began_s)
        return Round(answers, time.monotonic() - began_s)

    def batched(self, streams: Sequence[int], tokens: int) -> Round:
        """All answers in one batch, each row with its own adapter."""
        began_s = time.monotonic()
        names = [str(adapter_of(stream)) for stream in streams]
        answers = self._write(streams, tokens, began_s, adapter_names=names)
        return Round(answers, time.monotonic() - began_s)

    def _write(
        self, streams: Sequence[int], tokens: int, began_s: float, **options: Any
    ) -> list[StreamAnswer]:
        import torch

        asked = self._tokenizer.apply_chat_template(
            [[{"role": "user", "content": ASKED[stream]}] for stream in streams],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
            padding=True,
        )
        first_s = 0.0

        def watch(ids: Any, _scores: Any, **_: Any) -> Any:
            nonlocal first_s
            first_s = first_s or time.monotonic()
            return torch.zeros(ids.shape[0], dtype=torch.bool)

        ends = {self._tokenizer.eos_token_id, self._tokenizer.pad_token_id}
        with torch.inference_mode():
            written = self._model.generate(
                **asked,
                **options,
                max_new_tokens=tokens,
                do_sample=False,
                stopping_criteria=[watch],
                pad_token_id=self._tokenizer.pad_token_id,
            )
        rows = written[:, asked["input_ids"].shape[1] :].tolist()
        return [
            StreamAnswer(
                text=self._tokenizer.decode(row, skip_special_tokens=True),
                tokens=next((at + 1 for at, token in enumerate(row) if token in ends), len(row)),
                first_ms=(first_s - began_s) * 1_000,
            )
            for row in rows
        ]


def run_plain(folder: Path, tokens: int, threads: int, precision: str) -> PlainRounds:
    """All rounds of plain generate."""
    plain = Plain(folder, threads, precision)
    plain.in_turn([0], tokens)
    return PlainRounds(
        plain.in_turn([0], tokens),
        plain.in_turn(range(STREAMS), tokens),
        plain.batched(range(STREAMS), tokens),
    )


async def convert_base(folder: Path, engine: Path, precision: str) -> str:
    """The hash of the base model, whose file the engine then finds in this precision."""
    digest = hash_base(folder / "base")
    engine.mkdir()
    if precision == "fp32":  # the engine itself would store it in 16 bits
        links = engine / "linked"
        links.mkdir()
        for path in base_files(folder / "base"):
            (links / path.name).symlink_to(path)
        options = [str(links), "--outtype", "f32"]
        await run_script("convert_hf_to_gguf.py", options, engine / f"{digest}.gguf", engine)
    return digest


async def uploaded(blobs: MemoryBlobs, folder: Path) -> tuple[BlobFile, ...]:
    """The files of an adapter as a version has them."""
    files = []
    for name in sorted(ADAPTER_FILES):
        data = (folder / name).read_bytes()
        blob = f"t/a/{folder.name}/{name}"
        await blobs.put(blob, data)
        digest = sha256(data).hexdigest()
        files.append(BlobFile(name=name, blob=blob, sha256=digest, bytes=len(data)))
    return tuple(files)


@asynccontextmanager
async def serving(folder: Path, blobs: MemoryBlobs) -> AsyncIterator[SocketEngine]:
    """An engine with the settings of `tunery up`."""
    settings = EngineSettings()
    models = LoadedModels(
        ConvertedWeights(blobs, folder / "engine", settings.converted_max),
        LlamaEngine(
            answers_max=settings.answers_max,
            context_tokens=settings.context_tokens,
            threads=settings.threads,
        ),
        models_max=ADAPTERS,
        answers_max=settings.answers_max,
    )
    host = EngineHost(models, folder / "engine.sock", AnswerMeter(folder / "answers"))
    running = asyncio.create_task(host.run())
    await host.ready()
    try:
        yield SocketEngine(folder / "engine.sock")
    finally:
        running.cancel()
        await asyncio.wait((running,))


async def write_answer(engine: SocketEngine, question: Question, began_s: float) -> StreamAnswer:
    """Ask, and read to the end. Raises RuntimeError when the engine refuses."""
    texts: list[str] = []
    first_s = 0.0
    async for reply in engine.ask(question):
        if isinstance(reply, QuestionRefused):
            raise RuntimeError(f"the engine refused: {reply.code} {reply.message}")
        if isinstance(reply, AnswerEnded):
            return StreamAnswer(
                "".join(texts), reply.completion_tokens, (first_s - began_s) * 1_000
            )
        if isinstance(reply, TextAdded):
            first_s = first_s or time.monotonic()
            texts.append(reply.text)
    raise RuntimeError("the answer has no end")


async def run_engine(folder: Path, tokens: int, precision: str) -> tuple[Round, Round]:
    """One stream, and eight at the same time."""
    digest = await convert_base(folder, folder / "engine", precision)
    blobs = MemoryBlobs()
    models = []
    for number in range(ADAPTERS):
        files = await uploaded(blobs, folder / f"adapter-{number}")
        model = EngineModel(MODEL_ID, str(folder / "base"), digest, CONTEXT_TOKENS, files)
        models.append(model)
    sampling = Sampling(temperature=0, tokens_max=tokens)

    async def ask(engine: SocketEngine, streams: Sequence[int]) -> Round:
        questions = [
            Question(
                models[adapter_of(stream)], ({"role": "user", "content": ASKED[stream]},), sampling
            )
            for stream in streams
        ]
        began_s = time.monotonic()
        answers = await asyncio.gather(*(write_answer(engine, q, began_s) for q in questions))
        return Round(answers, time.monotonic() - began_s)

    async with serving(folder, blobs) as engine:
        for number in range(ADAPTERS):
            await ask(engine, [number])
        return await ask(engine, [0]), await ask(engine, range(STREAMS))


def figures_of(single: Round, eight: Round, plain: PlainRounds) -> dict[str, float]:
    """Figures of both sides. Equal texts are those of plain generate one after the other."""
    figures: dict[str, float] = {}
    rounds = {
        "one": single,
        "eight": eight,
        "plain_one": plain.single,
        "plain_eight_in_turn": plain.in_turn,
        "plain_eight_batched": plain.batched,
    }
    for name, measured in rounds.items():
        figures[f"{name}_tokens_s"] = round(measured.tokens_s, 1)
        figures[f"{name}_first_ms"] = round(measured.first_ms)
    for name in ("one", "eight_in_turn", "eight_batched"):
        ours = single if name == "one" else eight
        figures[f"ratio_{name}"] = round(ours.tokens_s / rounds[f"plain_{name}"].tokens_s, 2)
    pairs = zip(eight.answers, plain.in_turn.answers, strict=True)
    figures["equal_texts"] = sum(ours.text == theirs.text for ours, theirs in pairs)
    figures["texts"] = len(eight.answers)
    return figures


def in_own_process(part: str, arguments: argparse.Namespace, folder: Path) -> bytes:
    """The last line that a part of the bench prints. Raises RuntimeError when it fails."""
    command = [sys.executable, "-m", "bench.serve", "--part", part, "--folder", str(folder)]
    for name in ("base", "tokens", "threads", "precision"):
        command += [f"--{name}", str(getattr(arguments, name))]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{part}: {done.stderr[-1000:].decode('utf-8', 'replace')}")
    return (done.stdout.splitlines() or [b""])[-1]


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """All figures of one run."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        in_own_process("models", arguments, folder)
        engine = run_engine(folder, arguments.tokens, arguments.precision)
        single, eight = asyncio.run(engine)
        plain = in_own_process("plain", arguments, folder)
        figures = figures_of(single, eight, msgspec.json.decode(plain, type=PlainRounds))
    return figures | asyncio.run(proxied.measure(ASKED, arguments.tokens))


def main() -> None:
    """Measure, or be one of the parts that need a process of their own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--base", type=Path, help="folder of a base model; the bundled one")
    parser.add_argument("--tokens", type=int, default=64, help="of each answer at most")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of generate")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--part", choices=("models", "plain"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.base = arguments.base or bundled_base()
    folder, precision = arguments.folder, arguments.precision
    if arguments.part == "models":
        write_models(folder, arguments.base, precision)
    elif arguments.part == "plain":
        rounds = run_plain(folder, arguments.tokens, arguments.threads, precision)
        print(msgspec.json.encode(rounds).decode())
    else:
        goal = f"ratio_eight_in_turn and ratio_eight_batched of at least {GOAL}"
        print_figures(measure(arguments), as_json=arguments.json, goal=goal)


if __name__ == "__main__":
    main()
