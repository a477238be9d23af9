"""Small models keep the family and what a configuration switches on."""

import pytest

from tests.bases import Base
from tunery.ml.small_models import LAYERS, WIDTH, NotSmall, small_model

pytestmark = pytest.mark.train


def test_a_small_model_has_its_bases_switches_and_other_sizes(tiny: Base) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config

    tokenizer = AutoTokenizer.from_pretrained(tiny.dir)
    large = Qwen2Config(tie_word_embeddings=True, hidden_act="gelu", use_sliding_window=True)
    make = AutoModelForCausalLM.from_config
    model = small_model(large, tokenizer, make, parameters_max=10**7)
    config = model.config
    assert (config.hidden_size, config.num_hidden_layers) == (WIDTH, LAYERS)
    assert (config.tie_word_embeddings, config.hidden_act) == (True, "gelu")
    assert config.vocab_size == len(tokenizer)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    with pytest.raises(NotSmall, match="qwen2: 3,"):
        small_model(large, tokenizer, make, parameters_max=10**6)
