"""Rendering, tokenising and masking of conversations on one core, compared with TRL.

TRL has templates that mark what the assistant generates. The one of Qwen 2.5 uses the special
tokens of ChatML, which the tokenizer of SmolLM2 has: so both read the same tokenizer files and the
same template, and their ids and labels are compared. Real conversations are compared too when the
shared datasets are there.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

from tunery.data.checking import Checker
from tunery.data.containers.reading import open_rows
from tunery.data.dialects.conversation import Conversation
from tunery.data.findings.finding import Note
from tunery.data.findings.limits import ENCODE_ROWS
from tunery.data.tokens.tokenizer import Tokenizer
from tunery.local.paths import BASE_MODEL_ID, cache_dir

ROWS: Final = 4_000
QUICK: Final = 10  # times fewer
ROUNDS: Final = 3
TURN_CHARS: Final = 120
EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "lighthouse.jsonl"
TEMPLATE: Final = "qwen2_5.jinja"
SHARED: Final = Path(__file__).parents[3] / "shared" / "data" / "datasets"
REAL: Final = (
    "sft/tinker_conversations.jsonl",
    "pref/llamafactory_kto_en_demo.json.gz",
    "unicode/llamafactory_alpaca_zh_demo.json.gz",
    "tools/llamafactory_glaive_toolcall_en_demo.json.gz",
)
Labelled = tuple[list[int], list[int]]


def run(quick: bool) -> dict[str, float]:
    """Measure both rates, and the share of conversations with equal ids and labels."""
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = _both(Path(folder))
        rows = _synthetic_conversations(ROWS // (QUICK if quick else 1))
        rates = [  # in turn, so that other load affects both
            (_rate(lambda: _ours(ours, rows), rows), _rate(lambda: theirs(rows), rows))
            for _ in range(ROUNDS)
        ]
        results = {
            "tokenise_conversations_per_s": max(rate for rate, _ in rates),
            "tokenise_ratio_to_trl": max(r for r, _ in rates) / max(r for _, r in rates),
            **_equal(ours, theirs, rows, "tokenise"),
        }
        if SHARED.is_dir():
            real = [row for name in REAL for row in _conversations(SHARED / name)]
            results |= _equal(ours, theirs, real, "tokenise_real")
        else:
            print(f"no {SHARED.name} datasets beside the checkout: real conversations skipped")
    return results


def _both(folder: Path) -> tuple[Tokenizer, Callable[[list[Conversation]], list[Labelled]]]:
    """Our tokenizer, and TRL's function over the same files."""
    import trl
    from transformers import AutoTokenizer
    from trl.chat_template_utils import get_training_chat_template

    base = cache_dir() / "bases" / BASE_MODEL_ID
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copy(base / name, folder / name)
    template = Path(trl.__file__).parent / "chat_templates" / TEMPLATE
    shutil.copy(template, folder / "chat_template.jinja")
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    training = get_training_chat_template(tokenizer)

    def theirs(rows: list[Conversation]) -> list[Labelled]:
        labelled = []
        for row in rows:
            both = tokenizer.apply_chat_template(
                row.messages,
                tools=row.tools,
                chat_template=training,
                tokenize=True,
                return_dict=True,
                return_assistant_tokens_mask=True,
            )
            labelled.append((both["input_ids"], both["assistant_masks"]))
        return labelled

    return Tokenizer.load(folder), theirs


def _ours(tokenizer: Tokenizer, rows: list[Conversation]) -> list[Labelled | None]:
    labelled: list[Labelled | None] = []
    for start in range(0, len(rows), ENCODE_ROWS):
        rendered = [tokenizer.render(row) for row in rows[start : start + ENCODE_ROWS]]
        encoded = iter(tokenizer.encode([item for item in rendered if not isinstance(item, Note)]))
        for item in rendered:
            if isinstance(item, Note):
                labelled.append(None)
            else:
                tokens = next(encoded)
                labelled.append((tokens.ids, list(tokens.mask)))
    return labelled


def _equal(
    ours: Tokenizer,
    theirs: Callable[[list[Conversation]], list[Labelled]],
    rows: list[Conversation],
    name: str,
) -> dict[str, float]:
    """The share of conversations with the same ids, and with the same labels.

    TRL's template also labels the line breaks before an answer and after its end token. A model
    never generates these, so they are not compared.
    """
    breaks = {i for i in range(ours.vocabulary) if ours.decode([i]) == "\n"}
    ids = labels = 0
    for a, b in zip(_ours(ours, rows), theirs(rows), strict=True):
        if a is None or a[0] != list(b[0]):
            continue
        ids += 1
        pairs = zip(a[0], a[1], b[1], strict=True)
        labels += all(x == y or (y and not x and token in breaks) for token, x, y in pairs)
    return {
        f"{name}_ids_equal_to_trl": ids / len(rows),
        f"{name}_labels_equal_to_trl": labels / len(rows),
    }


def _rate(work: Callable[[], object], rows: list[Conversation]) -> float:
    began = time.process_time()
    work()
    return len(rows) / (time.process_time() - began)


def _synthetic_conversations(rows: int) -> list[Conversation]:
    """Conversations of five messages and about 600 characters, from sentences of the example."""
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    sentences = [message["content"] for line in lines for message in json.loads(line)["messages"]]
    pick = Random(3)  # noqa: S311  # no secrets here
    roles = ("system", "user", "assistant", "user", "assistant")
    trained = [role == "assistant" for role in roles]
    return [
        Conversation(
            [{"role": role, "content": _text(pick, sentences, TURN_CHARS)} for role in roles],
            trained,
        )
        for _ in range(rows)
    ]


def _text(pick: Random, sentences: list[str], chars: int) -> str:
    text = pick.choice(sentences)
    while len(text) < chars:
        text = f"{text} {pick.choice(sentences)}"
    return text[:chars].strip()


def _conversations(path: Path) -> Iterator[Conversation]:
    checker = Checker()
    with open_rows(path) as rows:
        for _, conversation in checker.conversations(rows):
            yield conversation
