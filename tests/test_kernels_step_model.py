"""Copies of modules that are called directly."""

import torch
from torch import nn

from regard.kernels.step_model import called_directly, for_steps
from regard.layers.recurrent import GateInputs


def test_a_direct_copy_computes_the_same_and_runs_hooks():
    inner = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Sequential(), nn.Linear(4, 3))
    model = nn.ModuleDict({"one": inner, "same": inner, "norm": nn.LayerNorm(3)}).eval()
    copy, seen = called_directly(model), []
    x = torch.randn(2, 3)
    assert torch.equal(copy["one"](x), inner(x))
    assert copy["one"] is copy["same"] is not inner
    assert isinstance(copy["one"][0], nn.Linear)
    assert copy["one"][0].weight is inner[0].weight
    inner[0].register_forward_hook(lambda *call: seen.append(call))
    called_directly(model)["one"](x)
    assert len(seen) == 1
    replaced = called_directly(model, lambda linear: nn.Identity())
    assert isinstance(replaced["one"][3], nn.Identity)
    assert type(replaced["one"][0]) is nn.Linear, "a hook observes it"


def test_gate_inputs_are_one_linear_layer_in_a_search_unless_hooks_observe_them():
    model, seen = nn.ModuleDict({"gates": GateInputs(3, 4)}).eval(), []
    nn.init.normal_(model["gates"].b)
    x = torch.randn(2, 3)
    with torch.inference_mode():
        low = for_steps(model)
        assert not isinstance(low["gates"], GateInputs)
        assert torch.allclose(low["gates"](x), model["gates"](x), atol=1e-6)
        model["gates"].W.register_forward_hook(lambda *call: seen.append(call))
        for_steps(model)["gates"](x)
    assert len(seen) == 1


def test_a_hook_before_a_linear_layer_runs_in_a_search():
    for layer in (GateInputs(3, 4), nn.Linear(3, 4)):
        model, x = nn.ModuleDict({"layer": layer}).eval(), torch.randn(2, 3)
        layer.register_forward_pre_hook(lambda module, given: (given[0] + 1,))
        with torch.inference_mode():
            assert torch.equal(for_steps(model)["layer"](x), layer(x))
