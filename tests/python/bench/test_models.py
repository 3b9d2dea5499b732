import pytest
import torch

from ipex.bench.models import MODELS

# In millions.
PARAMETERS = {
    "resnet50": 25.6,
    "mobilenet_v2": 3.5,
    "vgg16": 138.4,
    "densenet121": 8.0,
    "unet": 7.8,
    "bert_base": 109.5,
    "vit_b16": 86.6,
    "gpt2_prompt": 124.4,
    "gpt2_step": 124.4,
    "wide_mlp": 42.0,
    "tiny_mlp": 0.1,
    "lstm": 3.7,
}


@pytest.mark.parametrize("name", MODELS)
def test_runs_at_its_real_size(name):
    with torch.device("meta"), torch.no_grad():
        model, inputs = MODELS[name].make(3)
        output = model(*inputs)
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 1) == PARAMETERS[name]
    assert all(x.shape[0] == 3 for x in ([output] if isinstance(output, torch.Tensor) else output))
    assert not model.training


def test_is_the_same_each_time():
    (a, (x,)), (b, (y,)) = MODELS["tiny_mlp"].make(2), MODELS["tiny_mlp"].make(2)
    assert torch.equal(x, y)
    assert torch.equal(a(x), b(y))
