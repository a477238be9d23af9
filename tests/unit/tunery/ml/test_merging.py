"""A merged model gives the logits of base model and adapter, as far as its stored type can."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.tunery.ml.test_adapters import saved
from tunery.data.tokens.base_variants import write_tokenizer
from tunery.ml.merging import TOLERANCES, main, model_card
from tunery.platform.blobs.base_files import TOKENIZER_NAMES, hash_base
from tunery.work.own_chat import OwnChat

pytestmark = [
    pytest.mark.train,
    # peft 0.21 asks transformers 5 by a name that is going away
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]
__all__ = ["saved"]  # a fixture
LINEAGE = {"model_id": "ft:tiny:a::1", "lineage": {"base_id": "tiny", "verdict": "pass"}}


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_a_merged_model_answers_as_base_and_adapter_do(
    dtype: str,
    saved: Path,
    tiny: tuple[Path, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    target = tmp_path / "merged"
    assert main([str(saved), str(tiny[0]), str(target), dtype]) == 0
    reported = json.loads(capsys.readouterr().out.splitlines()[-1])["difference"]
    assert reported <= TOLERANCES[dtype]
    stored = AutoModelForCausalLM.from_pretrained(target)
    assert stored.dtype == getattr(torch, dtype)
    base = AutoModelForCausalLM.from_pretrained(tiny[0], dtype=torch.float32)
    adapted: Any = PeftModel.from_pretrained(base, saved)
    probe = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad():
        expected = adapted(probe).logits
        logits = stored.float()(probe).logits
        with adapted.disable_adapter():
            without = adapted(probe).logits
    bound = TOLERANCES[dtype] * float(expected.abs().max())
    assert float((logits - expected).abs().max()) <= bound
    assert float((without - expected).abs().max()) > 100 * TOLERANCES["float32"]
    if dtype == "float32":
        assert float((logits - expected).abs().max()) <= 6e-5
    assert AutoTokenizer.from_pretrained(target).encode("a") != []
    assert len(hash_base(target)) == 64


def test_an_existing_folder_and_another_base_model_are_refused(
    saved: Path, tiny: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(saved), str(tiny[0]), str(tmp_path), "float32"]) == 1
    assert "exists. Name a folder that does not" in capsys.readouterr().err
    (tmp_path / "adapter").mkdir()
    target = tmp_path / "merged"
    assert main([str(tmp_path / "adapter"), str(tiny[0]), str(target), "float32"]) == 1
    assert "cannot be merged" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["adapter"]
    assert main([str(saved)]) == 2


def test_a_card_says_where_a_model_comes_from() -> None:
    card = model_card(LINEAGE)
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "\nbase_model: tiny\n---\n" in card
    assert "| verdict of the gate | pass |" in card
    assert "unknown" in model_card({})


def test_bases_f7_a_merged_model_has_the_tokenizer_of_its_adapter(
    saved: Path, tiny: tuple[Path, str], tmp_path: Path
) -> None:
    adapter = Path(shutil.copytree(saved, tmp_path / "adapter"))
    own = write_tokenizer(tiny[0], OwnChat("{{ 'own' }}", ("<|im_start|>",)), tmp_path / "own")
    for name in TOKENIZER_NAMES:
        if (own / name).is_file():
            shutil.copyfile(own / name, adapter / name)
    target = tmp_path / "merged"
    assert main([str(adapter), str(tiny[0]), str(target), "float32"]) == 0
    assert (target / "chat_template.jinja").read_text() == "{{ 'own' }}"
    generation = json.loads((target / "generation_config.json").read_bytes())
    assert generation["eos_token_id"][0] == 1
