import pytest
import torch
from torch import Tensor, nn

import ipex
from support import assert_same, canonical_graph, check_against_eager, kinds


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5))


X = torch.randn(2, 3, 8, 8)


def forms(model: nn.Module, folder) -> dict[str, torch.jit.ScriptModule]:
    traced, scripted = torch.jit.trace(model, X), torch.jit.script(model)
    traced.save(folder / "traced.pt")
    frozen = torch.jit.freeze(scripted)
    frozen.save(folder / "frozen.pt")
    return {
        "traced": traced,
        "scripted": scripted,
        "frozen": frozen,
        "frozen trace": torch.jit.freeze(traced),
        "loaded": torch.jit.load(folder / "traced.pt"),
        "loaded frozen": torch.jit.load(folder / "frozen.pt"),
    }


@pytest.mark.parametrize("form", ["traced", "scripted", "frozen", "frozen trace", "loaded", "loaded frozen"])
def test_every_form_of_a_module(tmp_path, form):
    model = small().eval()
    with torch.no_grad():
        module = forms(model, tmp_path)[form]
        graph, expected = canonical_graph(module), module(X)
        optimized = ipex.jit_optimize(module)
        assert_same(optimized(X), model(X))
        assert not [n for n in optimized.inlined_graph.nodes() if n.kind().startswith("aten")]
        # The original is as it was.
        assert canonical_graph(module) == graph
        assert torch.equal(module(X), expected)


def test_refuses_training_mode():
    with pytest.raises(RuntimeError, match=r"expected a module in eval mode, got training=True. Call model.eval\(\)"):
        ipex.jit_optimize(torch.jit.script(small().train()))


def test_refuses_a_module_without_forward():
    with pytest.raises(RuntimeError, match="expected a module with a forward method"):
        ipex.jit_optimize(torch.jit.script(nn.ModuleList([nn.Linear(2, 2)])).eval())


class Extras(nn.Module):
    """Methods and attributes beside forward."""

    labels: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.labels = ["cat", "dog"]
        self.version = 7
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.embed(x) * self.version

    @torch.jit.export
    def embed(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x))


def test_methods_and_attributes_stay(tmp_path):
    model, x = Extras().eval(), torch.randn(2, 4)
    optimized = ipex.jit_optimize(torch.jit.script(model))
    optimized.save(tmp_path / "model.pt")
    with torch.no_grad():
        for module in (optimized, ipex.load(tmp_path / "model.pt")):
            assert module.labels == ["cat", "dog"]
            assert module.version == 7
            assert_same(module(x), model(x))
            assert_same(module.embed(x), model.embed(x))
            assert module.calls > 0
    assert "ipex::linear_run" in str(optimized.embed.graph)


def test_the_original_keeps_its_parameters():
    model = small().eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pointers = [p.data_ptr() for p in model.parameters()]
    ipex.jit_optimize(torch.jit.trace(model, X))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert pointers == [p.data_ptr() for p in model.parameters()]
    assert all(p.requires_grad for p in model.parameters())


class Counts(nn.Module):
    """forward changes a buffer and a list."""

    seen: list[int]

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.seen = nn.Linear(4, 3), []
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        self.seen.append(x.size(0))
        return self.linear(x) * self.calls


def test_state_is_not_shared_with_the_original():
    scripted, x = torch.jit.script(Counts().eval()), torch.randn(2, 4)
    with torch.no_grad():
        once = ipex.jit_optimize(scripted)
        twice = ipex.jit_optimize(once)
        for module in (once, twice, twice):
            module(x)
        assert (scripted.calls.item(), once.calls.item(), twice.calls.item()) == (0, 1, 2)
        assert (scripted.seen, once.seen, twice.seen) == ([], [2], [2, 2])
        assert_same(once(x), twice(x) / 3 * 2)


def add_ten(self, inputs: tuple[Tensor], result: Tensor) -> Tensor:
    return result + 10


def test_hooks_of_submodules_stay_and_others_are_refused():
    model, x = nn.Sequential(nn.Linear(4, 3)).eval(), torch.randn(2, 4)
    model[0].register_forward_hook(add_ten)
    with torch.no_grad():
        assert_same(ipex.jit_optimize(torch.jit.script(model))(x), model(x))
    with pytest.raises(RuntimeError, match="expected a module without forward hooks of its own, got 1"):
        ipex.jit_optimize(torch.jit.script(model[0]))


class Detached(nn.Module):
    """Freezing takes detach away."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        t = x.detach()
        t.squeeze_()
        return x * 2, t + 1


@pytest.mark.parametrize("script", [True, False])
def test_what_is_detached_changes_its_own_shape(script):
    check_against_eager(Detached(), torch.randn(1, 4), script=script)


class DetachedPiece(nn.Module):
    """Of what is changed in place after it was taken apart: gradients refuse another alias of it."""

    def forward(self, x: Tensor) -> Tensor:
        y = x * 0.5
        piece = y.unbind(1)[0]
        torch.ops.aten.squeeze_(y)
        return piece.detach()


@pytest.mark.parametrize("script", [True, False])
def test_a_detached_piece_stays_detached(script):
    model, x = DetachedPiece().eval(), torch.randn(2, 3, 4)
    optimized = ipex.jit_optimize(torch.jit.script(model) if script else torch.jit.trace(model, x))
    for _ in range(3):
        y = optimized(x.clone().requires_grad_())
        assert torch.equal(y, x[:, 0] * 0.5)
        assert not y.requires_grad


class WritesItsWeight(nn.Module):
    """A buffer that is written lies in the memory of a weight; another weight does not."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.other = nn.Linear(4, 3), nn.Linear(3, 5)
        self.register_buffer("flat", self.linear.weight.detach().view(-1))

    def forward(self, x: Tensor) -> Tensor:
        self.flat.mul_(0.5)
        return self.other(self.linear(x))


@pytest.mark.parametrize("script", [True, False])
def test_a_weight_that_is_written_through_a_buffer_is_no_constant(script):
    model, x = WritesItsWeight().eval(), torch.randn(2, 4)
    with torch.no_grad():
        optimized = ipex.jit_optimize(
            torch.jit.script(model) if script else torch.jit.trace(model, x, check_trace=False)
        )
    assert (kinds(optimized)["aten::linear"], kinds(optimized)["ipex::linear_run"]) == (1, 1)


class SetsItsWeight(nn.Module):
    """An attribute is another tensor at the next call."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x) * self.scale
        self.scale = self.scale + 1
        return y


def test_an_attribute_that_is_set_is_no_constant():
    scripted, eager, x = torch.jit.script(SetsItsWeight().eval()), SetsItsWeight().eval(), torch.randn(2, 3)
    with torch.no_grad():
        eager.linear = scripted.linear
        optimized = ipex.jit_optimize(scripted)
        for _ in range(3):
            assert_same(optimized(x), eager(x))


class ComputesNumbers(nn.Module):
    """Numbers of a call's result that follow from the model alone."""

    def forward(self, x: Tensor) -> tuple[Tensor, list[int]]:
        return torch.relu(x), sorted([3, 1, 2])


def test_numbers_are_no_attributes():
    optimized = ipex.jit_optimize(torch.jit.script(ComputesNumbers().eval()))
    assert optimized(torch.randn(2))[1] == [1, 2, 3]
    assert kinds(optimized)["prim::GetAttr"] == 0


class SharesBlocks(nn.Module):
    """The same submodules, read again and again, in branches too."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        if x.size(0) > 1:
            x = torch.relu(self.blocks[0](x))
        for block in self.blocks:
            x = block(x)
        return self.blocks[0](x) + self.blocks[1](x)


@pytest.mark.parametrize("rows", [1, 2])
def test_submodules_that_are_read_more_than_once(rows):
    model = SharesBlocks().eval()
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.script(model))
        x = torch.randn(rows, 4)
        assert_same(optimized(x), model(x))
    assert kinds(optimized)["aten::linear"] == 0


def test_the_code_of_its_parts_is_not_kept():
    """The copy is inlined; TorchScript would keep the graphs of its layers for as long as the process lives."""

    def functions() -> int:
        return len(torch.jit._state._python_cu.get_functions())

    scripted = torch.jit.script(SharesBlocks().eval())
    ipex.jit_optimize(scripted)
    before = functions()
    for _ in range(3):
        ipex.jit_optimize(scripted)
    assert functions() == before + 3
