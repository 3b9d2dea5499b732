"""One case from its text to a verdict, in this process. A crash takes the process along: worker.py sees to that."""

from __future__ import annotations

import contextlib
import copy
import os
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import ipex
from fuzz import doubt
from fuzz.compare import FACTOR, FLOOR, difference, essence
from fuzz.idle_writes import remove_idle_writes
from fuzz.outcome import Outcome, run
from fuzz.stages import build, frozen, plain_tensors, round_trip, torchscript, what_was_fused
from fuzz.strategies import Call, Case, Options
from fuzz.tensors import TensorSpec

Optimize = Callable[..., Any]
DISTURBANCES = 6

# Errors of TorchScript's own: a module that it optimises raises them without ipex, if not the same module.
TORCHSCRIPT_BUGS = (
    "tensor does not have a device",  # the gradient of a list of tensors of which one is not read
    "failed shape propagation in this context",  # a frozen addmm whose input's shape it guesses
    "DifferentiableGraphBackward returned an invalid gradient",  # of what was broadcast, or of a chunk
    r"Schema not found for node(?s:.)*prim::IfThenElse",  # of a chunk of which a piece is not read
    r"is output \d+ of torch::jit::.*DifferentiableGraph(Backward)?, is at version",  # kept for gradients
    "Expected out tensor to have dtype",  # of a number it takes an overload that eager does not
    r"Found dtype \w+ but expected",  # its autocast widens sums, which then do not fit into an `out=`
    "a view of a leaf Variable that requires grad",  # of floor, whose result it takes for a leaf
    "Inference tensors cannot be saved",  # of what it computed of constants once, in a call in inference mode
    "derivative for dequantize",  # of floats, which eager forgets where the result, its input, is overwritten
    r"input must have \d dimensions|\(got \dD input\)",  # it takes a convolution's result for a batch, and drops tests
)

# Images without a batch whose rows are as many as their channels: docs/decisions/convolutions.md
REFUSED_ON_PURPOSE = "Give it a batch."

# Eager's max_pool3d of an image without a batch, which lies as a 4-d channels-last one: elsewhere it lies otherwise.
# And a view of strides that ours does not have, or does not need.
REFUSED_LAYOUTS = ("Unsupported memory format", "view size is not compatible with input tensor's size and stride")

# What may be as torch.jit.freeze has it: it drops what nobody reads, and forgets who wants a gradient, and dtypes that
# autocast asks for. Numbers that it gets wrong are wrong: it shares memory that the model writes with what it folds.
FREEZES_OWN = ("result requires_grad", "result dtype", "gradient", "raises", "does not raise")

# TorchScript drops these: it does not see that they write what is in their lists.
LOST_WRITE = re.compile(r"_foreach_\w+_\(")

# While it compiles a script, it also drops writes to what the results of these lie in: they may be their input
# (docs/decisions/passes.md).
HIDDEN_ALIAS = re.compile(r"\b(atleast_[123]d|dequantize|dropout|einsum|sum_to_size|type_as)\b")
WRITE = re.compile(r"\w_\(|[-+*/]= ")


# What eager does not write: several of its elements, or one of them and one that it reads, are one number in memory.
REFUSED_MEMORY = "refer to a single memory location"

PRODUCT = re.compile(r"::\w*(linear|matmul|mm\b|conv)")

STATE = re.compile(r"self\.(st\d+)\b")  # attributes that state.py names


def _names_dtypes(error: str | None) -> bool:
    return re.search("dtype|scalar type|must have the type|type .*should be the same", error or "") is not None


class Verdict(NamedTuple):
    """`kind` is one of:

    clean                the optimised module does as eager does
    torchscript differs  it does as the scripted or traced module does, which eager does not
    freeze differs       it raises, or asks for gradients, as torch.jit.freeze has it, and eager and the module before
                         freezing do not; what freezing computes wrong is a failure
    both crashed         the process does not survive without ipex either
    rejected             not a program that eager and TorchScript take
    failed               none of these
    """

    kind: str
    category: str = ""
    detail: str = ""
    fused: tuple[str, ...] = ()  # packed ops of the graph, and passes that did something


class Mismatch(NamedTuple):
    category: str = ""
    detail: str = ""
    as_frozen: bool = False


def check(case: Case, optimize: Optimize = ipex.jit_optimize, stage: Callable[[str], None] = lambda _: None) -> Verdict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _Check(case, optimize, stage).verdict()


class _Check:
    def __init__(self, case: Case, optimize: Optimize, stage: Callable[[str], None]) -> None:
        self.case, self.optimize, self.stage = case, optimize, stage
        self.stock: dict[bool, list[Outcome]] = {}
        self.differs = False
        # Whether a call may depend on earlier ones: then each module has a model of its own, and makes all calls.
        self.in_turn = case.is_stateful or any(call.overwrites for call in case.calls)
        self.attributes = sorted(set(STATE.findall(case.source))) if case.is_stateful else []

    def verdict(self) -> Verdict:
        self.stage("eager")
        try:
            self.model = build(self.case.source)
        except Exception as error:
            return Verdict("rejected", "build", f"{type(error).__name__}: {error}")
        if self._overwrites_weights():
            self.case = self.case._replace(calls=tuple(c._replace(overwrites=False) for c in self.case.calls))
        self.expected = self._all_calls(self._eager())
        self.stage("torchscript")
        try:
            module = self._torchscript()
        except Exception as error:
            eager = self.expected[0].error
            return Verdict(
                "rejected", "eager raises" if eager else "torchscript", eager or f"{type(error).__name__}: {error}"
            )
        self.is_folded = "frozen" in self.case.how and "_fused_" in str(module.graph)
        before = str(module.graph) if self.case.saved else ""
        attributes = _values_of(module, self.attributes)
        self.stage("optimize")
        try:
            with _environment(self.case.options):
                optimized = self.optimize(module, **_given_to_optimize(self.case))
        except Exception as error:
            return self._optimize_raised(module, error)
        fused = what_was_fused(optimized) if self.optimize is ipex.jit_optimize else set()
        loaded = self._loaded(optimized) if self.case.saved and self.in_turn else None
        found = loaded if isinstance(loaded, Mismatch) else self._compare(optimized, "run optimised")
        if found is None and self.case.saved:
            if str(module.graph) != before:
                found = Mismatch("original changed", "the graph of the module that was optimised is another one")
            loaded = loaded or self._loaded(optimized)
            if isinstance(loaded, Mismatch):
                found = loaded
            elif loaded is not None and not self.differs:  # calls before may have left in it what eager's leave nowhere
                found = found or self._compare(loaded, "run loaded")
        for name, value in _values_of(module, self.attributes).items():
            if found is None and not torch.equal(value.nan_to_num(), attributes[name].nan_to_num()):
                found = Mismatch("original changed", f"calls of the optimised module write {name} of the other")
        kind = "torchscript differs" if self.differs else "clean"
        if found is not None:
            kind = "freeze differs" if found.as_frozen and found.category.startswith(FREEZES_OWN) else "failed"
        return Verdict(kind, *(found or Mismatch())[:2], tuple(sorted(fused)))

    def _optimize_raised(self, module: torch.jit.ScriptModule, error: Exception) -> Verdict:
        try:
            round_trip(frozen(module))
        except Exception as stock:
            return Verdict("torchscript differs", "freeze raises", str(stock))
        return Verdict("failed", "optimize raises", f"{type(error).__name__}: {error}")

    def _is_saved_after_its_calls(self) -> bool:
        """Whether TorchScript alone can: what wrote gradients into a constant of a trace can't be saved."""
        module = self._torchscript()
        for call in () if self.in_turn else self.case.calls:
            run(module, call)
        try:
            round_trip(module)
        except Exception:
            return False
        return True

    def _loaded(self, optimized: Any) -> Any:
        """The module after a way through a file; a mismatch where only TorchScript's goes it; None where none does."""
        self.stage("save and load")
        try:
            return round_trip(optimized)
        except Exception as error:
            if self._is_saved_after_its_calls():
                return Mismatch("save and load", f"{type(error).__name__}: {error}")
            self.differs = True
            return None

    def _eager(self) -> torch.nn.Module:
        """The model, as it is before the first call."""
        return build(self.case.source) if self.in_turn else self.model

    def _torchscript(self) -> torch.jit.ScriptModule:
        return torchscript(build(self.case.source), self.case.how, self.case.calls[0])

    def _all_calls(self, module: Any) -> list[Outcome]:
        return [run(module, call, attributes=self.attributes) for call in self.case.calls]

    def _call(self, module: Any, index: int, change: Callable[[Tensor], Tensor] | None = None) -> Outcome:
        """One call, after those that it may depend on."""
        for call in self.case.calls[:index] if self.in_turn else ():
            run(module, call, change)
        return run(module, self.case.calls[index], change, self.attributes)

    def _overwrites_weights(self) -> bool:
        """Whether the caller is given a weight, and would write it: who freezes a model takes weights for constants."""
        if not any(call.overwrites for call in self.case.calls):
            return False
        model = self._eager()
        weights = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
        outcomes = [run(model, call._replace(overwrites=False)) for call in self.case.calls]
        results = [t for o in outcomes for name, t in o.tensors if name.startswith("result")]
        return any(t.untyped_storage().data_ptr() in weights for t in results)

    def _compare(self, module: Any, stage: str) -> Mismatch | None:
        for index, call in enumerate(self.case.calls):
            if self.in_turn and (self.differs or any(outcome.error for outcome in self.expected[:index])):
                return None  # how far eager came before it raised is open, and so is what this call starts from
            self.stage(f"{stage}, call {index}")
            actual = run(module, call, attributes=self.attributes)
            self.stage("compare")
            for disturbances in (DISTURBANCES, 8 * DISTURBANCES):  # a difference is looked at again, more closely
                noise = _Noise(self.model, self.case, self._calls_to(index), disturbances)
                found = difference(actual, self.expected[index], noise)
                if found is None:
                    break
            if found is None:
                continue
            if self._is_about_an_empty_dtype(index, actual, found[0]) or self._takes_its_dtype(index, actual):
                continue
            if self._gives_nothing_in_its_dtype(index, actual) or REFUSED_ON_PURPOSE in (actual.error or ""):
                continue
            refused = self.expected[index].error or ""
            if found[0] == "does not raise" and any(r in refused for r in (*REFUSED_LAYOUTS, REFUSED_MEMORY)):
                continue
            if found[0] == "result dtype" and self._is_as_with_whole_factors(actual, noise):
                continue
            if (
                found[0] == "does not raise"
                and "mat1 and mat2" in refused
                and not PRODUCT.search(str(module.inlined_graph))
            ):
                continue  # of the product nobody reads an element: at most its sizes
            if found[0] == "result dtype" and call.mode == "autocast" and self.is_folded:
                self.differs = True
                continue  # of what was folded into a weight before ipex, nobody knows the dtype
            if self._is_as_traced(index, actual, noise):
                self.differs = True
                continue
            stock = self._stock(loaded="loaded" in stage)[index]
            of_stock = difference(stock, self.expected[index], noise)
            note = ""
            # Where a write is lost, eager's ops get other numbers than TorchScript's: only by chance the two end alike.
            if LOST_WRITE.search(self.case.source) and self._is_close_to_disturbed(actual, stock, index):
                self.differs = True
                continue
            if of_stock is not None:
                self.differs = True
                if (self.expected[index].error is None) != (stock.error is None):
                    continue  # no module of TorchScript's computes what eager does: there is no truth
                if (
                    "script" in self.case.how
                    and HIDDEN_ALIAS.search(self.case.source)
                    and WRITE.search(self.case.source)
                ):
                    continue  # nor here
                if LOST_WRITE.search(self.case.source) or (self.in_turn and "frozen" in self.case.how):
                    continue  # nor there, nor where freezing gave a constant to a caller who writes it
                if of_stock[0] == found[0] and found[0].endswith("requires_grad"):
                    continue  # it loses track of them, of one or of another
                if of_stock[0] == found[0] == "result shape":
                    continue  # it took another op for the one with `out=`, or a result for a constant
                is_narrow = self.case.dtype or call.mode == "autocast"
                if difference(actual, stock, noise) is None or _is_close(actual, stock, 4e-2 if is_narrow else 1e-4):
                    continue
                if self._is_close_to_disturbed(actual, stock, index):
                    continue
                note = f" (TorchScript alone: {of_stock[1]})"
            of_frozen = self._frozen()
            as_frozen = of_frozen is not None and self._is_alike(found[0], actual, of_frozen[index], noise)
            as_frozen = as_frozen or (found[0] == "does not raise" and self._frozen_takes(index))
            if found[0] == "result dtype" and of_frozen is not None and call.mode == "autocast":
                # At every run TorchScript casts what it does not know the dtype of, and freezing forgets dtypes.
                # Or it raises, where an op then gets two of them.
                of_both = difference(of_frozen[index], self.expected[index], noise)
                is_dtype = of_both is not None and (
                    of_both[0] == "result dtype" or _names_dtypes(of_frozen[index].error)
                )
                as_frozen = as_frozen or is_dtype
            error = actual.error or actual.gradient_error or ""
            if _is_torchscripts_own(error):
                self.differs = True
                continue
            return Mismatch(found[0], f"{stage}, call {index}, {call.mode}: {found[1]}{note}", as_frozen)
        return None

    def _may_lose_writes(self) -> bool:
        source = self.case.source
        return "script" in self.case.how and bool(HIDDEN_ALIAS.search(source) and WRITE.search(source))

    def _calls_to(self, index: int) -> tuple[Call, ...]:
        return self.case.calls[0 if self.in_turn else index : index + 1]

    def _stock(self, loaded: bool) -> list[Outcome]:
        """What TorchScript makes of the same calls without ipex."""
        if loaded not in self.stock:
            self.stage("torchscript")
            module = self._torchscript()
            module = round_trip(module) if loaded else module
            self.stock[loaded] = self._all_calls(module)
        return self.stock[loaded]

    def _is_as_with_whole_factors(self, actual: Outcome, noise: _Noise) -> bool:
        """Whether only einsum's spreading decides the dtype: autocast casts products of matrices, and eager multiplies
        element by element where one factor has a single one to sum."""
        whole = noise.with_whole_factors()
        return whole.error is None and difference(actual, whole, noise) is None

    def _is_as_traced(self, index: int, actual: Outcome, noise: _Noise) -> bool:
        """Whether eager goes another way than the trace, and the result is the trace's, cast by each op as in eager.
        TorchScript casts otherwise, so that it can't tell."""
        call = self.case.calls[index]
        if "trace" not in self.case.how or call.mode != "autocast" or actual.error is not None:
            return False
        as_before = torch._C._jit_set_autocast_mode(False)
        try:
            traced = self._call(self._torchscript(), index)
            if traced.error is not None or difference(traced, self.expected[index], noise) is None:
                return False
            is_same = difference(actual, traced, noise) is None or _is_close(actual, traced, 4e-2)
            return is_same or self._is_close_to_disturbed(actual, traced, index)
        finally:
            torch._C._jit_set_autocast_mode(as_before)

    def _frozen(self) -> list[Outcome] | None:
        """What torch.jit.freeze alone makes of them; None where it can't."""
        self.stage("torchscript")
        try:
            module = frozen(self._torchscript())
        except RuntimeError:
            return None
        return self._all_calls(module)

    def _frozen_takes(self, index: int) -> bool:
        """Whether the call passes without the ops whose results nobody reads, if it is the first, without gradients; or
        raises an error of TorchScript's, not eager's."""
        module, call = frozen(self._torchscript()), self.case.calls[index]
        remove_idle_writes(module._c._get_method(call.method).graph)
        for earlier in self._calls_to(index)[:-1]:
            run(module, earlier)
        error = run(module, call._replace(mode="no_grad")).error
        eager = self.expected[index].error
        assert eager is not None
        # TorchScript itself takes no bool for a number.
        return error is None or "Scalar" in error or _is_torchscripts_own(error) or essence(error) != essence(eager)

    def _is_alike(self, category: str, actual: Outcome, frozen: Outcome, noise: _Noise) -> bool:
        if category.startswith(("result requires_grad", "gradient")) and "detach()" in self.case.source:
            return True  # freezing drops it where it guesses that the tensor requires none
        return difference(actual, frozen, noise) is None

    def _takes_its_dtype(self, index: int, actual: Outcome) -> bool:
        """Whether a model that was given a dtype takes an input of it, where eager's weights are float32."""
        return bool(self.case.dtype) and actual.error is None and _names_dtypes(self.expected[index].error)

    def _gives_nothing_in_its_dtype(self, index: int, actual: Outcome) -> bool:
        """Whether only float32 is refused: aten's transposed convolutions of 16 bits may have an empty result."""
        error = self.expected[index].error or ""
        return bool(self.case.dtype) and actual.error is None and "Output size is too small" in error

    def _is_close_to_disturbed(self, actual: Outcome, stock: Outcome, index: int) -> bool:
        """Whether the values are no further from TorchScript's than its own move where inputs do by a rounding."""
        is_autocast = self.case.calls[index].mode == "autocast"
        given = getattr(torch, self.case.dtype) if self.case.dtype else torch.bfloat16 if is_autocast else None
        module = self._torchscript()
        fresh = [self._torchscript() if self.in_turn else module for _ in range(DISTURBANCES)]
        moved = [self._call(fresh[seed], index, _disturbance(seed, given)) for seed in range(DISTURBANCES)]
        for (_, a), (_, s), *others in zip(*_comparable(actual, stock, *moved)):
            a, s, *others = [t.detach().double() for t in (a, s, *(t for _, t in others))]
            if any(t.shape != a.shape for t in (s, *others)):
                return False
            # A NaN comes or goes with a rounding, too.
            settled = (torch.stack(others).isfinite() == s.isfinite()).all(0)
            if (settled & (a.isfinite() != s.isfinite())).any():
                return False
            off = [(t - s).nan_to_num(0, 0, 0).abs() for t in (a, *others)]
            largest = s.nan_to_num(0, 0, 0).abs().max().item() if s.numel() else 0.0
            if (off[0] > 8 * torch.stack(off[1:]).amax(0) + 1e-4 * largest).any():
                return False
        return bool(actual.tensors)

    def _is_about_an_empty_dtype(self, index: int, actual: Outcome, category: str) -> bool:
        """Whether only one side refuses the dtype of an empty tensor, or makes another one of it: eager does so
        sometimes, and sometimes it takes what it refuses in a tensor that is not empty."""
        call = self.case.calls[index]
        if not any(isinstance(a, TensorSpec) and 0 in a.shape for a in call.arguments):
            return False
        error = actual.error or self.expected[index].error
        full = [
            a._replace(shape=tuple(size or 1 for size in a.shape)) if isinstance(a, TensorSpec) else a
            for a in call.arguments
        ]
        refused = run(copy.deepcopy(self.model), call._replace(arguments=tuple(full))).error
        differs = error is not None or category == "result dtype"
        reasons = "type|not implemented for|ZeroDivision"
        return differs and refused is not None and re.search(reasons, refused) is not None


def told_by_variables(options: Options) -> dict[str, str]:
    told = {"IPEX_SHUFFLE": str(options.shuffle)} if options.shuffle else {}
    return told | ({"IPEX_VERIFY": "1"} if options.verify else {})


@contextlib.contextmanager
def _environment(options: Options) -> Iterator[None]:
    """The variables of the process while it optimises."""
    told = told_by_variables(options)
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _given_to_optimize(case: Case) -> dict[str, Any]:
    dtype = {"dtype": getattr(torch, case.dtype)} if case.dtype else {}
    return {**dtype, **({"disable": case.options.disable} if case.options.disable else {})}


def _values_of(module: Any, attributes: list[str]) -> dict[str, Tensor]:
    return {name: getattr(module, name).clone() for name in attributes if hasattr(module, name)}


def _comparable(*outcomes: Outcome) -> list[tuple[tuple[str, Tensor], ...]]:
    """Their tensors; without gradients where they don't agree on which results have some."""
    wanted = [[t.requires_grad for name, t in o.tensors if name.startswith("result")] for o in outcomes]
    if all(flags == wanted[0] for flags in wanted):
        return [o.tensors for o in outcomes]
    return [tuple((name, t) for name, t in o.tensors if not name.startswith("gradient")) for o in outcomes]


def _is_torchscripts_own(error: str) -> bool:
    return any(re.search(bug, error) for bug in TORCHSCRIPT_BUGS)


def _is_close(actual: Outcome, stock: Outcome, tolerance: float) -> bool:
    """Whether the values are alike; eager can't tell where TorchScript went another way (an if that was traced).

    Gradients come last, and only one of the two may have them: TorchScript computes some that eager refuses.
    """

    def close(a: Tensor, s: Tensor) -> bool:
        if a.shape != s.shape or not torch.equal(a.isfinite(), s.isfinite()):
            return False
        a, s = a.nan_to_num(0, 0, 0), s.nan_to_num(0, 0, 0)  # NaN or an infinity may be in doubt there
        largest = s.abs().max().item() if s.numel() else 0.0
        return torch.allclose(a, s, rtol=tolerance, atol=tolerance / 10 * (1 + largest))

    pairs = zip(*_comparable(actual, stock))
    return all(close(a.detach().double(), s.detach().double()) for (_, a), (_, s) in pairs)


class _Noise:
    """compare.Noise for one call: what eager gives when weights and inputs, or what each op computes, are disturbed."""

    def __init__(self, model: torch.nn.Module, case: Case, calls: tuple[Call, ...], disturbances: int) -> None:
        self.disturbances = disturbances
        # The dtype that the module was given: then its roundings are not those of eager.
        self.given = getattr(torch, case.dtype) if case.dtype else None
        # What is next to zero decides between two numbers that are not.
        self.chooses_by_sign = "torch.where(" in case.source or ".masked_fill(" in case.source
        # Inference mode computes the same, and hides from a dispatch mode what composite ops are made of.
        # The last call, and those that it depends on.
        self.model, self.calls = model, [c._replace(mode="no_grad") if c.mode == "inference" else c for c in calls]
        self.call = self.calls[-1]
        self.attributes = sorted(set(STATE.findall(case.source))) if case.is_stateful else []
        self.evaluated: dict[str, dict[str, Tensor]] = {}

    def disturbed(self, name: str) -> list[Tensor]:
        seeds = range(self.disturbances)
        found = [
            self._named(name, f"tensors {seed}", self._with_tensors, _disturbance(seed, self.given)) for seed in seeds
        ]
        found += [
            self._named(name, f"ops {seed}", self._under, doubt.Shaken(doubt.by_rounding(seed, self.given)))
            for seed in seeds
        ]
        shakes = {"positive": doubt.with_positive_zeros, "negative": doubt.with_negative_zeros}
        shakes |= {"earlier": doubt.past_steps(16), "later": doubt.past_steps(-16)}
        shakes |= {f"tiles {seed}": doubt.by_tiles(seed) for seed in (0, 1)}
        if self.given:
            shakes["given"] = doubt.by_given_dtype(self.given)
        found += [self._named(name, label, self._under, doubt.Shaken(shake)) for label, shake in shakes.items()]
        if name.startswith("gradient"):
            found.append(self._named(name, "contiguous", self._under, doubt.ContiguousInputs()))
        if self.chooses_by_sign:
            found += [*self._by_cancellation(name), self._with_short_range(name)]
        torch.set_flush_denormal(True)
        try:
            found.append(self._named(name, "flushed", self._with_tensors, _disturbance(self.disturbances)))
        finally:
            torch.set_flush_denormal(False)
        return [t for t in found if t is not None]

    def decides_errors(self) -> bool:
        raised = [not tensors for label, tensors in self.evaluated.items() if label.startswith(("tensors", "ops"))]
        return any(raised) and not all(raised)

    def allowed(self, dtype: torch.dtype) -> tuple[float, float]:
        # tests/low_precision.py: twice stock's error, and half a rounding.
        return (2.0, torch.finfo(self.given).eps / 2) if self.given else (FACTOR, FLOOR[dtype])

    def exact(self, name: str) -> Tensor | None:
        found = self._named(name, "float64", self._with_tensors, _widen)
        if found is None and self.call.mode == "autocast":  # a dtype is written down in the model
            found = self._named(name, "float32", self._without_autocast, None)
        return found

    def with_other_zeros(self, name: str) -> list[Tensor]:
        shakes: list[doubt.Shake] = [doubt.with_positive_zeros, doubt.with_negative_zeros]
        shakes += [doubt.with_zeros_of_any_sign(seed) for seed in range(self.disturbances)]
        shakes += [doubt.with_whole_exponents(self.given), doubt.at_poles(self.given)]
        found = [self._named(name, f"zeros {i}", self._under, doubt.Shaken(shake)) for i, shake in enumerate(shakes)]
        found += [*self._by_cancellation(name), self._with_short_range(name)]
        # In exact arithmetic more is zero than where what goes into a sum is rounded.
        of_float32 = doubt.Shaken(doubt.with_short_range(eps=torch.finfo(torch.float32).eps))
        found.append(self._named(name, "exact zeros", self._exactly_under, of_float32))
        # Exactly, too: aten's gelu of an infinite float32 is NaN on some CPUs.
        meetings = [doubt.Shaken(doubt.where_infinities_meet(winner)) for winner in (0, 1)]
        found += [self._named(name, f"infinities {i}", self._under, m) for i, m in enumerate(meetings)]
        found += [self._named(name, f"exact infinities {i}", self._exactly_under, m) for i, m in enumerate(meetings)]
        found.append(self._named(name, "whole factors", lambda _: self.with_whole_factors(), None))
        return [t for t in found if t is not None]

    def with_whole_factors(self) -> Outcome:
        return self._under(doubt.WholeFactors())

    def _by_cancellation(self, name: str) -> list[Tensor | None]:
        seeds = range(self.disturbances)
        shakes = [doubt.Shaken(doubt.by_cancellation(seed, self.given)) for seed in seeds]
        return [self._named(name, f"cancellation {seed}", self._under, shake) for seed, shake in zip(seeds, shakes)]

    def _with_short_range(self, name: str) -> Tensor | None:
        return self._named(name, "short range", self._under, doubt.Shaken(doubt.with_short_range(self.given)))

    def layout_is_open(self) -> bool:
        found: list[str] = []
        with doubt.ambiguous_layouts(found):
            self._run(copy.deepcopy(self.model))
        return bool(found)

    def _named(self, name: str, label: str, evaluate: Callable[[Any], Outcome], change: Any) -> Tensor | None:
        """One tensor of the call, or attribute after it; None where it fails."""
        if label not in self.evaluated:
            outcome = evaluate(change)
            self.evaluated[label] = dict(outcome.states) | dict(outcome.tensors)
        found = self.evaluated[label].get(name)
        return None if found is None else found.detach()

    def _run(self, model: torch.nn.Module, change: Callable[[Tensor], Tensor] | None = None) -> Outcome:
        for call in self.calls[:-1]:
            run(model, call, change)
        return run(model, self.call, change, self.attributes)

    def _with_tensors(self, change: Callable[[Tensor], Tensor]) -> Outcome:
        model = copy.deepcopy(self.model)
        tensors = {id(t): t for t in [*model.parameters(), *model.buffers(), *plain_tensors(model)]}.values()
        storages = [tensor.untyped_storage() for tensor in tensors]  # held: nothing else comes to lie where one was
        changed: dict[int, Tensor] = {}  # by memory, which several tensors may share
        for tensor, storage in zip(tensors, storages):
            whole = changed.get(storage.data_ptr())
            if whole is None:
                whole = change(tensor.detach().new_empty(0).set_(storage))  # type: ignore[call-overload]
                changed[storage.data_ptr()] = whole
            tensor.data = whole.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        return self._run(model, change)

    def _without_autocast(self, _: None) -> Outcome:
        model = copy.deepcopy(self.model)
        return [run(model, call._replace(mode="no_grad")) for call in self.calls][-1]

    def _under(self, mode: TorchDispatchMode | TorchFunctionMode) -> Outcome:
        with mode:
            return self._run(copy.deepcopy(self.model))

    def _exactly_under(self, mode: TorchDispatchMode) -> Outcome:
        with mode:
            return self._with_tensors(_widen)


def _disturbance(seed: int, given: torch.dtype | None = None) -> Callable[[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def disturb(values: Tensor) -> Tensor:
        if not values.is_floating_point():
            return values
        by = torch.rand(values.shape, generator=generator, dtype=torch.float64) * 2 - 1
        return (values.double() * (1 + 2 * doubt.rounding(values.dtype, given) * by)).to(values.dtype)

    return disturb


def _widen(values: Tensor) -> Tensor:
    return values.double() if values.is_floating_point() else values
