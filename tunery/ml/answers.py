"""A process that computes answers with transformers and PEFT, in fp32, each for itself.

    python -m tunery.ml.answers --threads N

It reads `tunery.work.answers` orders from standard input and writes replies to standard output.
Answers take turns token by token and are never batched, so what is asked beside one does not change
it. A base model is loaded once for all its adapters. When standard input ends, the process does.
"""

import argparse
import os
import queue
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from schemas.training import ADAPTER_FILES
from tunery.ml.imports import large_imports
from tunery.work.answers import (
    AbandonAnswer,
    DropModel,
    LoadModel,
    ModelReady,
    ModelUnloadable,
    ProcessOrder,
    ProcessReply,
    TokensEnded,
    TokenWritten,
    WriteAnswer,
    decode_process_order,
    encode_record,
)
from tunery.work.engine import Sampling

with large_imports():
    import torch
    from peft import PeftConfig, PeftModel
    from safetensors import SafetensorError
    from safetensors.torch import load_file
    from torch import Tensor

    from tunery.ml.language import load_language_model

#: what reading broken files raises
UNREADABLE: Final = (OSError, RuntimeError, ValueError, KeyError, TypeError, SafetensorError)


class SharedBase:
    """A base model with all the adapters that are in use. users: names of models, base or not."""

    def __init__(self, folder: str, device: torch.device) -> None:
        """Raises one of UNREADABLE."""
        loaded = load_language_model(folder, dtype=torch.float32, use_safetensors=True)
        self._model: Any = loaded.to(device).eval()
        self.users: set[str] = set()
        config = self._model.generation_config
        ends = config.eos_token_id if config.eos_token_id is not None else []
        self.ends: Final = frozenset([ends] if isinstance(ends, int) else ends)

    def add(self, name: str, adapter: str) -> None:
        """Load an adapter under a name. Raises one of UNREADABLE."""
        PeftConfig.from_pretrained(adapter)
        load_file(Path(adapter) / ADAPTER_FILES[0])  # nothing is changed for a broken file
        try:
            if isinstance(self._model, PeftModel):
                self._model.load_adapter(adapter, adapter_name=name)
            else:
                self._model = PeftModel.from_pretrained(self._model, adapter, adapter_name=name)
        except UNREADABLE:
            self.remove(name)
            raise
        self._model.eval()

    def remove(self, name: str) -> None:
        """Forget an adapter, if it is there."""
        if isinstance(self._model, PeftModel) and name in self._model.peft_config:
            if len(self._model.peft_config) == 1:
                self._model = self._model.unload()
            else:
                self._model.delete_adapter(name)

    def logits(self, name: str, ids: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Logits of the next token, [vocabulary], and the cache with all that was read."""
        tuned = isinstance(self._model, PeftModel)
        has_adapter = tuned and name in self._model.peft_config
        if has_adapter and self._model.active_adapter != name:
            self._model.set_adapter(name)
        off = self._model.disable_adapter() if tuned and not has_adapter else nullcontext()
        with off:
            output = self._model(
                input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1
            )
        return output.logits[0, -1].float(), output.past_key_values


@dataclass
class UnfinishedAnswer:
    """An answer so far."""

    order: WriteAnswer
    base: SharedBase
    unread: Tensor  # [1, tokens], tokens that the model has not read
    generator: torch.Generator
    cache: Any = None
    written: Counter[int] = field(default_factory=Counter)


class AnswerWriter:
    """Does what orders say. say: takes each reply."""

    def __init__(self, say: Callable[[ProcessReply], None]) -> None:
        self._say = say
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._bases: dict[str, SharedBase] = {}
        self._models: dict[str, SharedBase] = {}
        self._unfinished: dict[int, UnfinishedAnswer] = {}

    @property
    def busy(self) -> bool:
        """True while an answer is unfinished."""
        return bool(self._unfinished)

    def take(self, order: ProcessOrder) -> None:
        """Do what an order says; an answer is only begun."""
        match order:
            case LoadModel():
                self._load(order)
            case WriteAnswer():
                generator = torch.Generator()
                if order.sampling.seed is None:
                    generator.seed()
                else:
                    generator.manual_seed(order.sampling.seed)
                prompt = torch.tensor([order.prompt], device=self._device)
                base = self._models[order.model]
                self._unfinished[order.number] = UnfinishedAnswer(order, base, prompt, generator)
            case AbandonAnswer():
                self._unfinished.pop(order.number, None)
            case DropModel():
                self._drop(order.model)

    def write_tokens(self) -> None:
        for answer in list(self._unfinished.values()):
            self._write_token(answer)

    def _write_token(self, answer: UnfinishedAnswer) -> None:
        order, sampling = answer.order, answer.order.sampling
        with torch.inference_mode():
            logits, answer.cache = answer.base.logits(order.model, answer.unread, answer.cache)
            logits = logits.cpu()
            token = choose(logits, sampling, answer.written, answer.generator)
        answer.written[token] += 1
        written = answer.written.total()
        if token in (order.ends or answer.base.ends):
            self._end(order, "stop", written)
            return
        self._say(TokenWritten(order.number, token, *probabilities(logits, token, sampling)))
        if written == order.tokens_max:
            self._end(order, "length", written)
        answer.unread = torch.tensor([[token]], device=self._device)

    def _end(self, order: WriteAnswer, finish_reason: str, tokens: int) -> None:
        del self._unfinished[order.number]
        self._say(TokensEnded(order.number, finish_reason, tokens))

    def _load(self, order: LoadModel) -> None:
        try:
            base = self._bases.get(order.base) or SharedBase(order.base, self._device)
            if order.adapter is not None:
                base.add(order.model, order.adapter)
        except UNREADABLE as error:
            self._say(ModelUnloadable(order.number, f"{type(error).__name__}: {error}"[:500]))
            return
        base.users.add(order.model)
        self._bases[order.base] = self._models[order.model] = base
        self._say(ModelReady(order.number))

    def _drop(self, model: str) -> None:
        base = self._models.pop(model)
        base.users.discard(model)
        base.remove(model)
        self._bases = {folder: used for folder, used in self._bases.items() if used.users}


def choose(
    logits: Tensor, sampling: Sampling, written: Mapping[int, int], generator: torch.Generator
) -> int:
    """The next token. logits: [vocabulary]. written: how often the answer has each token."""
    if written and (sampling.presence_penalty or sampling.frequency_penalty):
        tokens = torch.tensor(list(written))
        counts = torch.tensor(list(written.values()), dtype=logits.dtype)
        penalty = sampling.presence_penalty + sampling.frequency_penalty * counts
        logits = logits.index_add(0, tokens, -penalty)
    if sampling.temperature == 0:
        return int(logits.argmax())
    shares, tokens = (logits / sampling.temperature).softmax(0).sort(descending=True)
    before = shares.cumsum(0) - shares
    shares = shares.where(before < sampling.top_p, 0.0)  # the likeliest one always stays
    return int(tokens[torch.multinomial(shares, 1, generator=generator)])


def probabilities(
    logits: Tensor, token: int, sampling: Sampling
) -> tuple[float | None, tuple[tuple[int, float], ...]]:
    """Log-probability of a token, and of the likeliest ones, where they were asked for."""
    if sampling.top_logprobs is None:
        return None, ()
    logprobs = logits.log_softmax(0)
    values, tokens = logprobs.topk(sampling.top_logprobs)
    likely = tuple(zip(tokens.tolist(), values.tolist(), strict=True))
    return float(logprobs[token]), likely


def main() -> None:
    """Take orders until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, required=True)
    torch.set_num_threads(parser.parse_args().threads)
    said = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no reply

    def say(reply: ProcessReply) -> None:
        said.write(encode_record(reply))
        said.flush()

    orders: queue.SimpleQueue[ProcessOrder | None] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            orders.put(decode_process_order(line))
        orders.put(None)

    threading.Thread(target=read, daemon=True).start()
    writer = AnswerWriter(say)
    while True:
        while not writer.busy or not orders.empty():
            order = orders.get()
            if order is None:
                return
            writer.take(order)
        writer.write_tokens()


if __name__ == "__main__":
    main()
    os._exit(0)  # what is imported is not taken apart, which takes a second
