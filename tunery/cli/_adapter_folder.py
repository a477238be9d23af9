"""The folder of a downloaded adapter, made such that libraries find its base model."""

import json
from pathlib import Path
from typing import Final

CONFIG: Final = "adapter_config.json"


def name_base(folder: Path, base: str, revision: str | None) -> None:
    """Let `AutoPeftModelForCausalLM.from_pretrained(folder)` load this base model.

    base: name at a hub, or an absolute folder. revision: commit at the hub.
    """
    path = folder / CONFIG
    config = json.loads(path.read_bytes())
    config |= {"base_model_name_or_path": base, "revision": revision}
    text = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")
