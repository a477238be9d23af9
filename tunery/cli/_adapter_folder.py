"""The folder of a downloaded adapter, made such that libraries find its base model."""

import json
from pathlib import Path
from typing import Final

from tunery.local.errors import LocalError

CONFIG: Final = "adapter_config.json"
BASE: Final = "base"  # next to the adapter, where `--with-base` puts the base model


def name_base(folder: Path, base: str, revision: str | None) -> None:
    """Let `AutoPeftModelForCausalLM.from_pretrained(folder)` load this base model.

    base: name at a hub, or an absolute folder. revision: commit at the hub.
    """
    path = folder / CONFIG
    config = json.loads(path.read_bytes())
    config |= {"base_model_name_or_path": base, "revision": revision}
    text = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def base_folder(folder: Path) -> Path:
    """Return the folder of an adapter's base model. Raises LocalError where there is none.

    The one next to the adapter comes first: the name in the configuration is a path of the machine
    and the folder that the adapter was downloaded to.
    """
    if (folder / BASE).is_dir():
        return folder / BASE
    try:
        named = Path(json.loads((folder / CONFIG).read_bytes())["base_model_name_or_path"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LocalError(
            f"{folder} has no {CONFIG} that names a base model",
            "download the adapter with `tunery model download MODEL FOLDER --with-base`",
        ) from error
    if not named.is_dir():
        raise LocalError(
            f"the base model {named} is not on this machine",
            "name its folder with --base FOLDER, or download the adapter with --with-base",
        )
    return named
