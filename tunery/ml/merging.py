"""Writes an adapter and its base model as one model, in the layout of Hugging Face's hub.

    python -m tunery.ml.merging ADAPTER BASE TARGET DTYPE

The sum is computed in 32 bits and rounded once. What was written is read again, and its logits are
compared with those of base model and adapter. Exit status 0: TARGET exists, and a line of JSON says
how far the logits are apart; 1: it does not, and the reason is on standard error.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from tunery.ml.rewards import HEAD
from tunery.platform.blobs.base_files import TOKENIZER_NAMES
from tunery.work.exits import WorkError

if TYPE_CHECKING:
    from peft import PeftConfig

PROBE_TOKENS: Final = 32
#: how far logits may be apart after they are stored so, as a share of the largest one; for 32 bits
#: sums of other order, for the others one rounding of each weight
TOLERANCES: Final = {"float32": 6e-5, "float16": 2e-2, "bfloat16": 1e-1}
CARD: Final = "README.md"
LINEAGE: Final = "lineage.json"
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2


def merge(adapter: Path, base: Path, target: Path, dtype: str) -> float:
    """Write the merged model; the largest difference of logits, as a share of the largest logit.

    Raises WorkError when the adapter does not load or the differences are too large.
    """
    from peft import PeftConfig, PeftModel  # seconds to import

    from tunery.ml.language import load_language_model

    if target.exists():
        raise WorkError("user", f"{target} exists", "Name a folder that does not.")
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        _refuse_head(PeftConfig.from_pretrained(adapter), adapter)
        model = load_language_model(base, dtype=torch.float32).eval()
        probe = (
            torch.arange(PROBE_TOKENS).unsqueeze(0) * 37 % model.config.get_text_config().vocab_size
        )
        adapted: Any = PeftModel.from_pretrained(model, adapter).eval()
        expected = _logits(adapted, probe)
        merged = adapted.merge_and_unload(safe_merge=True)
        merged.to(getattr(torch, dtype)).save_pretrained(part)
        stored = load_language_model(part, dtype=torch.float32).eval()
        difference = float((_logits(stored, probe) - expected).abs().max() / expected.abs().max())
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        shutil.rmtree(part, ignore_errors=True)
        message = f"{adapter} cannot be merged with {base}: {error}"
        raise WorkError(
            "user", message, "Download both again, and compare their hashes."
        ) from error
    if not difference <= TOLERANCES[dtype]:
        shutil.rmtree(part, ignore_errors=True)
        message = f"as {dtype} its logits differ by {difference:.1e} of the largest one"
        raise WorkError("user", message, "Store it as float32.")
    _complete(part, adapter, base)
    part.replace(target)
    return difference


def _refuse_head(config: "PeftConfig", adapter: Path) -> None:
    if HEAD in (config.modules_to_save or ()):
        message = f"{adapter} is a reward model: merged into its base it would lose its head"
        raise WorkError(
            "user", message, "Load the adapter with PEFT, as docs/how-to/train.md says."
        )


def model_card(lineage: dict[str, Any]) -> str:
    """The text of README.md, with the data that the hub reads at its head.

    lineage: keys see `LINEAGE`
    """
    known = lineage.get("lineage", {})
    base_id = known.get("base_id", "unknown")
    head = ("library_name: transformers", "pipeline_tag: text-generation", f"base_model: {base_id}")
    facts = {
        "base model": f"{base_id}, SHA-256 {known.get('base_sha256', 'unknown')}",
        "training data": f"SHA-256 {known.get('training_sha256', 'unknown')}",
        "configuration": f"SHA-256 {known.get('config_sha256', 'unknown')}",
        "optimizer steps": known.get("steps", "unknown"),
        "job": known.get("job_id", "unknown"),
        "verdict of the gate": known.get("verdict", "unknown"),
    }
    rows = "".join(f"| {name} | {value} |\n" for name, value in facts.items())
    title = lineage.get("model_id", "A fine-tuned model")
    return (
        f"---\n{chr(10).join(head)}\n---\n\n# {title}\n\n"
        "A LoRA adapter, merged into its base model.\n\n"
        f"| where it comes from | |\n|---|---|\n{rows}"
    )


def _complete(folder: Path, adapter: Path, base: Path) -> None:
    """Put the tokenizer, the adapter's own if it has one, and the card next to the weights."""
    own = (adapter / "tokenizer.json").is_file()
    for name in TOKENIZER_NAMES:
        source = (adapter if own else base) / name
        if source.is_file():
            shutil.copyfile(source, folder / name)
    lineage = adapter / LINEAGE
    known = json.loads(lineage.read_bytes()) if lineage.is_file() else {}
    (folder / CARD).write_text(model_card(known), encoding="utf-8")


def _logits(model: Any, probe: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(probe).logits.clone()
    return logits


def main(arguments: list[str]) -> int:
    """The exit status, as the description of the module says."""
    match arguments:
        case [adapter, base, target, dtype] if dtype in TOLERANCES:
            pass
        case _:
            usage = "usage: python -m tunery.ml.merging ADAPTER BASE TARGET"
            print(f"{usage} {'|'.join(TOLERANCES)}", file=sys.stderr)
            return EXIT_USAGE
    try:
        difference = merge(Path(adapter), Path(base), Path(target), dtype)
    except WorkError as error:
        print(f"{error.message}. {error.advice}", file=sys.stderr)
        return EXIT_FAILED
    print(json.dumps({"dtype": dtype, "difference": difference}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
