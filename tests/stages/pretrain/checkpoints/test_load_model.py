"""A user relies on: what is evaluated and exported is the model that was trained, of whatever family, and its moving
average where one was kept.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from stages.pretrain.checkpoints.checkpoint import load_model
from stages.pretrain.model.shape import FAMILIES, Family
from tests.stages.pretrain import micro
from tests.stages.pretrain.checkpoints.test_checkpoint import stored
from tests.stages.pretrain.conftest import Build

IDS = torch.arange(2 * 9).reshape(2, 9)


def model_settings(family: Family) -> dict[str, Any]:
    more = {"mup_base_hidden_size": 12, "residual_multiplier": 0.5} if family == "granite" else {}
    return {**micro.MODEL.model_dump(), "family": family, "tie_embeddings": family != "qwen2", **more}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_of_every_family_is_the_trained_one(family: Family, build: Build, tmp_path: Path) -> None:
    training, _, directory = stored(build, tmp_path, steps=2, model=model_settings(family))
    loaded = load_model(directory)
    assert loaded.config.model_type == family and loaded.config.vocab_size == micro.VOCABULARY
    with torch.no_grad():
        wanted = training.model(input_ids=IDS, use_cache=False).logits[..., : micro.VOCABULARY]
        assert torch.equal(loaded(input_ids=IDS, use_cache=False).logits, wanted)
    (scores,) = loaded.generate(IDS[:1], max_new_tokens=2, do_sample=False, pad_token_id=0)
    assert len(scores) == 11


@pytest.mark.parametrize("family", ["llama", "granite"])
def test_a_moving_average_is_read_in_place_of_the_weights(family: Family, build: Build, tmp_path: Path) -> None:
    training, _, directory = stored(build, tmp_path, steps=3, model=model_settings(family), ema_decay=0.9)
    tensors = training.tensors()
    loaded = load_model(directory)
    for name, parameter in loaded.named_parameters():
        average = tensors[f"ema.{name}"][: len(parameter)]
        assert torch.equal(parameter, average), name
        assert not torch.equal(parameter, tensors[f"model.{name}"][: len(parameter)]), name
    assert (loaded.lm_head.weight is loaded.model.embed_tokens.weight) == loaded.config.tie_word_embeddings
