"""A prepared optimizer is used as torch's is."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ipex.optim import Lamb, Lars
from ipex.optim.prepare import prepare
from optimizer_cases import CASES, PLAIN, TOLERANCE, largest_difference, layers, prepared, set_gradients


def pair(name="adamw", *sizes):
    """Two equal models, one with torch's optimizer and one with ours."""
    first = layers(*(sizes or (13, 20, 5)))
    second = copy.deepcopy(first)
    return first, CASES[name](first.parameters()), second, prepared(CASES[name], second)


def step_both(first, stock, second, ours, steps=3):
    for _ in range(steps):
        set_gradients([first, second])
        stock.step()
        ours.step()


def assert_near(first, second):
    assert largest_difference([second, first]) < TOLERANCE


@pytest.mark.parametrize("name", PLAIN)
def test_it_says_what_it_is(name):
    model = layers(13, 20)
    optimizer = CASES[name](model.parameters())
    stock = type(optimizer)
    shown = repr(optimizer)
    assert prepare(model, optimizer, torch.float32, True, True) == []
    assert optimizer.fused is True
    assert isinstance(optimizer, stock)
    assert repr(optimizer) == shown


@pytest.mark.parametrize("name", PLAIN)
def test_the_original_step_is_torchs(name):
    first, stock, second, ours = pair(name)
    for _ in range(3):
        set_gradients([first, second])
        stock.step()
        ours._original_step()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters()))
    step_both(first, stock, second, ours)
    assert_near(first, second)


def test_nothing_is_asked_for_and_nothing_is_done():
    model = layers(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert prepare(model, optimizer, torch.float32, True, False) == []
    assert type(optimizer) is torch.optim.SGD


class MySGD(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate parameters:UserWarning")
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda p: torch.optim.RMSprop(p), "none for this class"),
        (lambda p: MySGD(p, lr=0.1), "none for this class"),
        (lambda p: torch.optim.Adam(p, differentiable=True), "is differentiable"),
        (lambda p: torch.optim.Adam(p, capturable=True), "is capturable"),
        (lambda p: torch.optim.SGD([*(own := list(p)), own[0]], lr=0.1), "has a parameter twice"),
    ],
)
def test_what_is_not_covered_keeps_its_step_and_its_weights(make, reason):
    model = layers(3, 4)
    optimizer = make(model.parameters())
    before = type(optimizer)
    (said,) = prepare(model, optimizer, torch.bfloat16, True, True)
    assert reason in said
    assert "stay float32" in said
    assert type(optimizer) is before
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_a_replaced_step_is_kept():
    model = layers(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.step = lambda: "mine"
    (said,) = prepare(model, optimizer, None, True, True)
    assert "somebody replaced its step" in said
    assert optimizer.step() == "mine"


def test_parameters_that_stay_are_named():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2).double())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    reasons = prepare(model, optimizer, torch.bfloat16, True, True)
    assert len(reasons) == 2
    assert reasons[0].startswith("1.weight stays as it is")
    assert "float64" in reasons[0]


def test_preparing_twice():
    first, stock, second, ours = pair()
    assert prepare(second, ours, None, True, True) == []
    step_both(first, stock, second, ours)
    assert_near(first, second)


def test_after_some_steps_of_stock():
    first, stock, second, _ = pair()
    other = CASES["adamw"](second.parameters())
    step_both(first, stock, second, other)
    assert prepare(second, other, None, True, True) == []
    step_both(first, stock, second, other)
    assert_near(first, second)


def test_hooks_run_around_the_step():
    model = layers(3, 4)
    optimizer = torch.optim.Adam(model.parameters())
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    assert prepare(model, optimizer, None, True, True) == []
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    everywhere = register_optimizer_step_pre_hook(lambda *_: calls.append("everywhere"))
    set_gradients([model])
    optimizer.step()
    everywhere.remove()
    assert calls == ["everywhere", "before", "after"]


def test_a_closure_gives_the_loss():
    model = layers(3, 4)
    optimizer = prepared(CASES["adam"], model)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).square().sum()
        loss.backward()
        return loss

    before = float(optimizer.step(closure).detach())
    for _ in range(10):
        after = float(optimizer.step(closure).detach())
    assert after < before


@pytest.mark.parametrize("early", [True, False])
def test_schedulers(early):
    first = layers(13, 20)
    second = copy.deepcopy(first)
    stock, ours = CASES["sgd_momentum"](first.parameters()), CASES["sgd_momentum"](second.parameters())

    def schedulers(optimizer):
        return lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=20)

    theirs, mine = schedulers(stock), schedulers(ours) if early else None
    assert prepare(second, ours, None, True, True) == []
    mine = mine or schedulers(ours)
    for _ in range(19):
        step_both(first, stock, second, ours, 1)
        theirs.step()
        mine.step()
    assert ours.param_groups[0]["lr"] == stock.param_groups[0]["lr"]
    assert ours.param_groups[0]["momentum"] == stock.param_groups[0]["momentum"]
    assert_near(first, second)


def test_a_scheduler_that_steps_first_is_told_so():
    model = layers(3, 4)
    optimizer = prepared(CASES["adam"], model)
    scheduler = lr_scheduler.StepLR(optimizer, 1)
    with pytest.warns(UserWarning, match=r"before .optimizer.step"):
        scheduler.step()


@pytest.mark.parametrize("stock_is_fused", [False, True])
def test_a_grad_scaler(stock_is_fused):
    first = layers(13, 20)
    second = copy.deepcopy(first)
    stock = torch.optim.Adam(first.parameters(), lr=1e-2)
    ours = torch.optim.Adam(second.parameters(), lr=1e-2, fused=stock_is_fused)
    assert prepare(second, ours, None, True, True) == []
    scalers = [torch.amp.GradScaler("cpu", init_scale=1024.0) for _ in range(2)]
    for i in range(6):
        x = torch.randn(4, 13)
        for model, optimizer, scaler in zip((first, second), (stock, ours), scalers):
            optimizer.zero_grad()
            scaler.scale(model(x).square().sum()).backward()
            if i == 2:
                model[0].weight.grad[0, 0] = torch.inf  # this step is left out
            scaler.step(optimizer)
            scaler.update()
        assert_near(first, second)
    assert float(ours.state[second[0].weight]["step"]) == 5
    assert scalers[0].get_scale() == scalers[1].get_scale()


def test_a_grad_scaler_and_float16_weights():
    torch.manual_seed(3)
    model = layers(13, 20)
    expected = copy.deepcopy(model)
    optimizer, plain = prepared(CASES["adam"], model, torch.float16), prepared(CASES["adam"], expected)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(torch.ones(()))  # makes the scale
    for step in range(4):
        set_gradients([model, expected], scale=0.01)
        for p, q in zip(model.parameters(), expected.parameters()):
            q.grad = p.grad.float()
            p.grad *= 1024  # as a backward pass of the scaled loss would give it
        if step == 2:
            model[0].weight.grad[0, 0] = torch.inf
        else:
            plain.step()
        scaler.step(optimizer)
        scaler.update(1024.0)
    assert_near(expected, model)


@pytest.mark.parametrize("name", PLAIN)
def test_state_dicts_go_to_stock_and_back(name):
    first, stock, second, ours = pair(name)
    step_both(first, stock, second, ours)
    theirs, mine = copy.deepcopy(stock.state_dict()), copy.deepcopy(ours.state_dict())
    stock.load_state_dict(mine)
    ours.load_state_dict(theirs)
    step_both(first, stock, second, ours)
    assert_near(first, second)


def test_load_hooks_see_what_torch_shows_them():
    model = layers(3, 4)
    optimizer = prepared(CASES["adam"], model, torch.bfloat16)
    set_gradients([model])
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    doubled = copy.deepcopy(saved)
    for state in doubled["state"].values():
        state["exp_avg"] *= 2
    seen = []
    optimizer.register_load_state_dict_pre_hook(lambda _, found: doubled)
    optimizer.register_load_state_dict_post_hook(lambda own: seen.extend(s["exp_avg"] for s in own.state.values()))
    optimizer.load_state_dict(saved)
    assert all(torch.equal(a, s["exp_avg"]) for a, s in zip(seen, doubled["state"].values()))
    assert {t.dtype for t in seen} == {torch.float32}


def test_groups_with_their_own_options_and_later_ones():
    first = layers(13, 20, 5)
    second = copy.deepcopy(first)

    def make(model):
        groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[1].parameters(), "momentum": 0.5}]
        return torch.optim.SGD(groups, lr=0.01, maximize=True)

    stock, ours = make(first), make(second)
    assert prepare(second, ours, None, True, True) == []
    step_both(first, stock, second, ours)
    for model, optimizer in ((first, stock), (second, ours)):
        optimizer.add_param_group({"params": model[3].parameters(), "lr": 0.5, "nesterov": True, "momentum": 0.9})
    step_both(first, stock, second, ours)
    assert_near(first, second)


def test_a_later_group_has_masters_too():
    first = layers(13, 20, 5)
    second = copy.deepcopy(first)
    models = (first, second)
    ours = [torch.optim.AdamW(m[0].parameters(), lr=1e-2) for m in models]
    assert prepare(first, ours[0], None, True, True) == []
    assert prepare(second, ours[1], torch.bfloat16, True, True) == []
    for model, optimizer in zip(models, ours):
        optimizer.add_param_group({"params": model[3].parameters()})
    for _ in range(3):
        set_gradients(models)
        for optimizer in ours:
            optimizer.step()
    assert second[3].weight.dtype == torch.bfloat16
    assert all(torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values()))


def test_a_later_group_that_is_differentiable_is_refused():
    model = layers(3, 4)
    optimizer = prepared(CASES["adam"], model)
    with pytest.raises(ValueError, match="is differentiable"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))], "differentiable": True})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("name", PLAIN)
def test_parameters_without_a_gradient(name):
    first, stock, second, ours = pair(name)
    before = second[3].weight.detach().clone()
    for step in range(4):
        set_gradients([first, second])
        for model in (first, second):
            model[0].bias.requires_grad_(False)
            model[0].bias.grad = None
            if step < 2:
                model[3].weight.grad = None
        stock.step()
        ours.step()
        if step < 2:
            assert torch.equal(second[3].weight, before)
    assert_near(first, second)
    assert len(stock.state) == len(ours.state)


class Strided(nn.Module):
    """Weights that do not lie in order."""

    def __init__(self):
        super().__init__()
        self.turned = nn.Parameter(torch.randn(20, 30).t())
        self.images = nn.Parameter(torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last))
        self.sliced = nn.Parameter(torch.randn(20, 30)[:, ::3])
        self.empty = nn.Parameter(torch.randn(0, 3))
        self.single = nn.Parameter(torch.randn(()))


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("same_layout", [True, False])
def test_weights_that_do_not_lie_in_order(name, same_layout):
    first = Strided()
    second = copy.deepcopy(first)
    for one, other in zip(first.parameters(), second.parameters()):  # a copy need not keep strides
        other.data = torch.empty_strided(one.shape, one.stride()).copy_(one.detach())
    stock, ours = CASES[name](first.parameters()), prepared(CASES[name], second)
    for _ in range(5):
        for one, other in zip(first.parameters(), second.parameters()):
            gradient = torch.randn(one.shape)
            one.grad = gradient
            other.grad = gradient.clone()
            if same_layout:
                other.grad = torch.empty_strided(one.shape, one.stride()).copy_(gradient)
        stock.step()
        ours.step()
    for one, other in zip(first.parameters(), second.parameters()):
        assert one.stride() == other.stride()
        torch.testing.assert_close(other, one, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("name", ["sgd", "sgd_momentum", "adagrad"])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_sparse_gradients(name, dtype):
    def make(p):
        if name == "sgd_momentum":
            return torch.optim.SGD(p, lr=0.05, momentum=0.9)
        return CASES[name](p)

    first = nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Linear(8, 3))
    second = copy.deepcopy(first)
    stock, ours = make(first.parameters()), prepared(make, second, dtype)
    for _ in range(4):
        words = torch.randint(0, 50, (20,))
        for model, optimizer in ((first, stock), (second, ours)):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype is not None):
                model(words).sum().backward()
            optimizer.step()
    assert first[0].weight.grad.is_sparse
    if dtype is None:
        assert_near(first, second)
    else:  # gradients are rounded
        torch.testing.assert_close(second.state_dict()["0.weight"], first[0].weight.data, rtol=0.05, atol=0.02)


def test_adam_refuses_sparse_gradients_as_torch_does():
    model = nn.Embedding(50, 8, sparse=True)
    optimizer = prepared(CASES["adam"], model)
    model(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.bfloat16])
def test_dtypes_that_the_kernels_do_not_take(dtype):
    first = nn.ParameterList([nn.Parameter(torch.randn(10, dtype=dtype)), nn.Parameter(torch.randn(10))])
    second = copy.deepcopy(first)
    stock, ours = CASES["adam"](first.parameters()), prepared(CASES["adam"], second)
    for _ in range(3):
        for a, b in zip(first, second):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        stock.step()
        ours.step()
    torch.testing.assert_close(second[0], first[0])
    torch.testing.assert_close(second[1], first[1])


def test_gradients_that_are_lazily_negated():
    first = nn.Linear(20, 20)
    second = copy.deepcopy(first)
    stock, ours = CASES["sgd"](first.parameters()), prepared(CASES["sgd"], second)
    for model in (first, second):
        torch.manual_seed(2)
        for p in model.parameters():
            p.grad = torch.randn(p.shape, dtype=torch.complex64).conj().imag
            assert p.grad.is_neg()
    stock.step()
    ours.step()
    assert_near(first, second)


def test_replaced_states_parameters_and_options_are_seen():
    first, stock, second, ours = pair("adamw")
    step_both(first, stock, second, ours)
    for model, optimizer in ((first, stock), (second, ours)):
        optimizer.state[model[0].weight]["exp_avg"] = torch.ones_like(model[0].weight)
        optimizer.state[model[3].weight].clear()
    step_both(first, stock, second, ours, 1)
    for optimizer in (stock, ours):
        optimizer.state.clear()
        optimizer.param_groups[0]["weight_decay"] = 0.5
    step_both(first, stock, second, ours)
    for model, optimizer in ((first, stock), (second, ours)):
        optimizer.param_groups[0]["params"] = optimizer.param_groups[0]["params"][1:]
        model[3].weight.data = torch.ones_like(model[3].weight)
    step_both(first, stock, second, ours)
    assert_near(first, second)


def test_a_backward_pass_after_the_step_is_refused_as_with_torch():
    model = nn.Linear(3, 3)
    optimizer = prepared(CASES["sgd"], model)
    x = torch.ones(2, 3, requires_grad=True)
    y = model(model(x)).sum()
    set_gradients([model])
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_gradients_are_not_kept_alive():
    model = nn.Linear(3, 3)
    optimizer = prepared(CASES["adam"], model)
    set_gradients([model])
    gradient = weakref.ref(model.weight.grad)
    optimizer.step()
    optimizer.zero_grad()
    gc.collect()
    assert gradient() is None


def test_a_profiler_names_the_step():
    model = nn.Linear(3, 3)
    optimizer = prepared(CASES["adam"], model)
    set_gradients([model])
    with torch.profiler.profile() as profile:
        optimizer.step()
    assert {"ipex::adam_step", "Optimizer.step#Adam.step"} <= {event.name for event in profile.events()}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda p: Lamb(p, lr=-1.0), "ipex.optim.Lamb: expected lr"),
        (lambda p: Lamb(p, betas=(0.9, 1.0)), "ipex.optim.Lamb: expected lr"),
        (lambda p: Lars(p, trust_coefficient=0.0), "ipex.optim.Lars: expected lr"),
        (lambda p: Lars(p, nesterov=True), "expected momentum and no dampening"),
    ],
)
def test_nonsense_options_are_errors(make, said):
    with pytest.raises(ValueError, match=said):
        make([nn.Parameter(torch.ones(3))])


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("cls", [Lamb, Lars])
def test_zero_weights_and_zero_gradients_get_a_trust_ratio_of_one(cls, weight_decay):
    first = nn.Linear(20, 20)
    second = copy.deepcopy(first)
    for model in (first, second):
        nn.init.zeros_(model.bias)

    def make(p):
        return cls(p, lr=0.1, weight_decay=weight_decay)

    stock, ours = make(first.parameters()), prepared(make, second)
    for _ in range(3):
        set_gradients([first, second])
        for model in (first, second):
            model.weight.grad.zero_()
        stock.step()
        ours.step()
    assert_near(first, second)
    assert first.bias.abs().max() > 0
