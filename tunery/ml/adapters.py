"""Canonical adapters: the same training gives the same bytes, wherever it ran.

    python -m tunery.ml.adapters verify ADAPTER BASE [REFERENCE]

Loads the adapter with PEFT and prints as JSON that the base is unchanged beneath it, and how far
its logits are from those of REFERENCE. Exit status 65: it does not load, or they differ.

A canonical adapter is a directory of two files, `ADAPTER_FILES`: the weights (tensors by sorted
name, finite, no pickles anywhere) and the configuration (sorted keys, sorted lists of names, no
local paths, the base named by its id). With a chat template of its own it has the files of its
tokenizer beside them.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from shutil import copyfile
from typing import Any, Final, TypedDict

import torch
from msgspec import Struct
from safetensors.torch import save_file
from torch import Tensor

from schemas.training import ADAPTER_FILES
from tunery.ml.durable import new_directory
from tunery.ml.rewards import HEAD
from tunery.platform.blobs.files import file_sha256
from tunery.work.exits import WorkError

WEIGHTS, CONFIG = ADAPTER_FILES
METADATA: Final = {"format": "pt"}  # of files of weights, as libraries expect it
PROBE_TOKENS: Final = 32
EXPERTS: Final = "experts"  # the module that has the weights of all experts of a layer
EXPERT_DIMENSIONS: Final = 3  # of such a weight
EXIT_USAGE: Final = 64
EXIT_DIFFERS: Final = 65


class Canonical(TypedDict):
    """Hashes of the two files, and the bytes of both together."""

    sha256: str
    config_sha256: str
    bytes: int


class LoadProof(Struct, frozen=True, kw_only=True):
    """Result of loading with `PeftModel.from_pretrained`; differences are of logits."""

    base_unchanged: bool
    adapter_effect_max: float
    reference_difference_max: float | None


def write_canonical(
    tensors: dict[str, Tensor],
    config: dict[str, Any],
    dst: Path,
    base_id: str,
    beside: Sequence[Path] = (),
) -> Canonical:
    """Write an adapter to `dst` in canonical form.

    tensors: LoRA weights and layers trained as a whole, by the names PEFT saves them under
    config: the PEFT configuration as JSON values, see `adapter_config`
    base_id: names the base model in the written configuration
    beside: files of its own tokenizer

    Raises WorkError("user") for tensors that are no LoRA weights, or not finite.
    """
    whole = config.get("modules_to_save") or ()
    for name, tensor in tensors.items():
        if ".lora_" not in name and not any(f".{layer}." in name for layer in whole):
            raise _unusable(f"tensor {name!r} is no LoRA weight")
        if not bool(torch.isfinite(tensor).all()):
            raise _unusable(f"tensor {name!r} holds NaN or infinity")
    text = canonical_config(config, base_id)
    return write_files(partial(save_tensors, tensors), text, ADAPTER_FILES, dst, beside)


def write_files(
    write: Callable[[Path], None],
    configuration: str,
    names: tuple[str, str],
    dst: Path,
    beside: Sequence[Path] = (),
) -> Canonical:
    """Write weights and configuration to `dst`, which is there when all of it is.

    write: writes the file of the weights. names: of both files
    beside: files that are copied there as they are
    """
    weights, config = names
    with new_directory(dst) as begun:
        write(begun / weights)
        (begun / config).write_text(configuration, encoding="utf-8")
        for path in beside:
            copyfile(path, begun / path.name)
        for path in begun.iterdir():
            path.chmod(0o644)
    return Canonical(
        sha256=file_sha256(dst / weights),
        config_sha256=file_sha256(dst / config),
        bytes=sum(path.stat().st_size for path in dst.iterdir()),
    )


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors to a file of safetensors, by sorted name."""
    ordered = {name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)}
    save_file(ordered, path, metadata=METADATA)


def canonical_config(config: dict[str, Any], base_id: str) -> str:
    """`adapter_config.json` as text: one spelling for one meaning.

    It names the base by its id alone, which libraries take for a repository or a folder. The hash
    of the base is in the lineage of the model.
    """
    plain = {name: _normalise(value) for name, value in config.items()}
    plain["base_model_name_or_path"] = base_id
    plain["revision"] = None
    plain["inference_mode"] = True
    return f"{json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False)}\n"


def adapter_tensors(model: Any) -> dict[str, Tensor]:
    """The adapter's own tensors of a PEFT model, by the names PEFT saves them under."""
    from peft import get_peft_model_state_dict  # seconds of import

    return dict(get_peft_model_state_dict(model, save_embedding_layers=False))


def adapted(model: Any) -> str:
    """Describe which layers of a PEFT model have an adapter, and which experts have none.

    The experts of a mixture are tensors of three dimensions, which no name of a linear layer names.
    """
    paths: set[str] = set()
    experts: dict[str, int] = {}
    trained = total = 0
    for name, weight in model.named_parameters():
        total += _count(weight)
        path, _, last = name.replace(".base_layer", "").rpartition(".")
        if weight.requires_grad:
            trained += _count(weight)
            paths.add(path.partition(".lora_")[0].partition(".modules_to_save")[0])
        elif (
            path.endswith(f".{EXPERTS}") and weight.dim() == EXPERT_DIMENSIONS and path not in paths
        ):
            experts[last] = experts.get(last, 0) + weight.numel()
    layers = sorted({path.rpartition(".")[2] for path in paths})
    text = f"the adapter has {trained:,} parameters in {', '.join(layers)}"
    text += f"; the base has {total - trained:,}"
    if experts and "experts" not in layers:
        share = sum(experts.values()) / (total - trained)
        text += f". {', '.join(sorted(experts))} of the experts, {share:.0%} of it, are not adapted"
    return text


def _count(weight: Any) -> int:
    """How many numbers a tensor holds: two in each byte of one in four bits."""
    count: int = weight.numel() * (2 if type(weight).__name__ == "Params4bit" else 1)
    return count


def adapter_config(model: Any) -> dict[str, Any]:
    """The PEFT configuration of a model's adapter, as plain JSON values."""
    config = model.peft_config["default"].to_dict()
    plain: dict[str, Any] = json.loads(json.dumps(config, default=_plain))
    if HEAD in (plain["modules_to_save"] or ()):  # so libraries load it on a model with such a head
        plain["task_type"] = "SEQ_CLS"
    return plain


def verify_loads(adapter_dir: Path, base_dir: Path, reference_dir: Path | None = None) -> LoadProof:
    """Load an adapter the way a user would and compare logits on a fixed probe.

    With `reference_dir`, both adapters must give the same logits, bit for bit. Raises
    `WorkError("user")` when the adapter does not load, or changes the base beneath it.
    """
    before, with_adapter, after = _logits(adapter_dir, base_dir)
    if not torch.equal(before, after):
        raise _unusable("the base model's logits changed although the adapter was off")
    difference = None
    if reference_dir is not None:
        _, reference, _ = _logits(reference_dir, base_dir)
        difference = float((with_adapter - reference).abs().max())
    return LoadProof(
        base_unchanged=True,
        adapter_effect_max=float((with_adapter - before).abs().max()),
        reference_difference_max=difference,
    )


def _logits(adapter_dir: Path, base_dir: Path) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of the base, of base with adapter, and of the base again with the adapter off."""
    from peft import PeftModel  # as above

    from tunery.ml.language import load_language_model

    base = load_language_model(base_dir, dtype=torch.float32).eval()
    probe = torch.arange(PROBE_TOKENS).unsqueeze(0) * 37 % base.config.get_text_config().vocab_size
    with torch.no_grad():
        before = base(probe).logits
        try:
            model = PeftModel.from_pretrained(base, adapter_dir).eval()
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            raise _unusable(f"{adapter_dir.name} does not load: {error}") from error
        with_adapter = model(probe).logits
        with model.disable_adapter():
            after = model(probe).logits
    return before, with_adapter, after


def _normalise(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return sorted(value)
    return value


def _plain(value: Any) -> Any:
    """JSON for what PEFT keeps as sets and enums."""
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


def _unusable(what: str) -> WorkError:
    return WorkError("user", f"adapter: {what}", "Save the adapter again with PEFT.")


def main(arguments: list[str]) -> int:
    """`verify`: the exit status, as the description of the module says."""
    match arguments:
        case ["verify", adapter, base, *rest] if len(rest) <= 1:
            reference = Path(rest[0]) if rest else None
        case _:
            usage = "usage: python -m tunery.ml.adapters verify ADAPTER BASE [REFERENCE]"
            print(usage, file=sys.stderr)
            return EXIT_USAGE
    try:
        proof = verify_loads(Path(adapter), Path(base), reference)
    except WorkError as error:
        print(f"{error.message}. {error.advice}", file=sys.stderr)
        return EXIT_DIFFERS
    answer = {
        "base_unchanged": proof.base_unchanged,
        "adapter_effect_max": proof.adapter_effect_max,
        "reference_difference_max": proof.reference_difference_max,
    }
    print(json.dumps(answer), flush=True)
    return EXIT_DIFFERS if proof.reference_difference_max else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
