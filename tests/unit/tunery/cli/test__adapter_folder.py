"""The folder of an adapter names its base model, and nothing else of it changes."""

import json
from pathlib import Path

from tunery.cli._adapter_folder import CONFIG, name_base


def test_first_hour_13_only_the_base_is_named(tmp_path: Path) -> None:
    config = {"base_model_name_or_path": "smol", "peft_type": "LORA", "r": 8, "revision": None}
    (tmp_path / CONFIG).write_text(json.dumps(config))
    name_base(tmp_path, "Org/Smol", "ab" * 20)
    named = json.loads((tmp_path / CONFIG).read_bytes())
    assert named == config | {"base_model_name_or_path": "Org/Smol", "revision": "ab" * 20}
    name_base(tmp_path, "/srv/bases/smol", None)
    assert json.loads((tmp_path / CONFIG).read_bytes())["revision"] is None
