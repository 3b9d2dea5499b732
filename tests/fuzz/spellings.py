"""How activations and arithmetic are written: templates that elementwise.py fills in."""

# One group for each row: groups are drawn with the same chance.
ACTIVATIONS = (
    ("F.relu({v})", "torch.relu({v})", "{v}.relu()", "F.relu({v}, inplace=True)", "{v}.relu_()", "torch.relu_({v})"),
    ("F.relu6({v})", "F.relu6({v}, inplace=True)", "F.hardtanh({v}, 0.0, 6.0)"),
    ("F.hardtanh({v})", "F.hardtanh_({v}, -0.5, 2.0)", "F.hardtanh({v}, -2.0, 1.0)"),
    (
        "F.leaky_relu({v})",
        "F.leaky_relu({v}, 0.2)",
        "F.leaky_relu_({v}, 0.1)",
        "F.leaky_relu({v}, -0.5)",
        "F.rrelu({v})",
    ),
    ("F.elu({v})", "F.elu({v}, 0.7)", "F.elu_({v})", "torch._C._nn.elu({v}, 1.5, 1.0, 0.5)", "F.elu({v}, -0.5)"),
    ("F.selu({v})", "F.celu({v}, 1.3)", "F.celu({v})", "F.selu({v}, inplace=True)", "F.celu({v}, -0.5)"),
    ("F.gelu({v})", "F.gelu({v}, approximate='tanh')"),
    ("F.silu({v})", "F.silu({v}, inplace=True)", "F.mish({v})", "F.mish({v}, inplace=True)"),
    ("torch.sigmoid({v})", "{v}.sigmoid()", "{v}.sigmoid_()", "torch.sigmoid_({v})"),
    ("torch.tanh({v})", "{v}.tanh_()", "F.softplus({v})", "F.softplus({v}, 2.0, 1.0)"),
    ("F.hardsigmoid({v})", "F.hardsigmoid({v}, inplace=True)", "F.relu6({v} + 3.0) / 6.0"),
    ("F.hardswish({v})", "F.hardswish({v}, inplace=True)"),
    ("{v} * F.relu6({v} + 3) / 6", "{v} * F.hardtanh({v} + 3, 0.0, 6.0) / 6.0", "{v} * F.hardsigmoid({v})"),
    (
        "torch.clamp({v}, -0.5, 0.8)",
        "{v}.clamp(min=0.0)",
        "{v}.clamp_(max=0.5)",
        "torch.clamp_min({v}, -0.2)",
        "{v}.clamp_(0, 6)",
    ),
    (
        "torch.clamp({v}, 1.0, -1.0)",
        "{v}.clamp_min_(0)",
        "torch.clamp({v}, float('-inf'), 1.0)",
        "torch.clamp({v}, max=float('nan'))",
    ),
    ("F.threshold({v}, 0.1, 0.0)", "F.logsigmoid({v})", "F.softsign({v})", "torch.erf({v})", "F.softshrink({v}, 0.1)"),
    ("{v} * torch.sigmoid({v})", "torch.sigmoid({v}) * {v}", "{v}.mul_(torch.sigmoid({v}))", "{v}.sigmoid().mul_({v})"),
    ("torch.abs({v})", "{v}.abs_()", "{v}.abs()"),
    ("torch.square({v})", "{v} * {v}", "{v}.square_()", "{v}.pow(2)", "{v} ** 2.0", "{v}.pow_(2)"),
    ("torch.round({v})", "{v}.round_()", "torch.round({v}, decimals=1)", "torch.floor({v})", "torch.sign({v})"),
    ("torch.exp(-torch.abs({v}))", "torch.exp({v})", "torch.exp_({v})", "torch.expm1({v})"),
    ("torch.log(torch.abs({v}) + 1)", "torch.log({v})", "{v}.log_()", "torch.log1p({v})"),
    ("torch.sqrt(torch.abs({v}))", "torch.sqrt({v})", "{v}.sqrt_()", "torch.pow({v}, 0.5)", "torch.rsqrt({v})"),
    (
        "torch.pow({v}, 3)",
        "torch.pow({v}, -1)",
        "torch.pow(torch.abs({v}), 1.5)",
        "torch.pow(2.0, {v})",
        "torch.reciprocal({v})",
    ),
    ("torch.pow({v}, 4)", "torch.pow({v}, -2)", "torch.ceil({v})", "torch.trunc({v})", "torch.log1p(torch.abs({v}))"),
    (
        "torch.where({v} > 0, {v}, 0.1 * {v})",
        "torch.where({v} > 0, {v} * {v}, torch.expm1({v}))",
        "torch.where({v} < 0.3, 0.5, {v})",
        "torch.where(({v} > -1) & ~({v} >= 1) | ({v} == 0), {v} * {v}, 0.0)",
        "torch.where(torch.logical_xor({v} > -0.5, {v} <= 0.5), {v}, {v}.new_tensor(0.25))",
    ),
    (
        "{v}.masked_fill({v} <= -1, -2.0)",
        "{v}.masked_fill_({v} > 1, float('inf'))",
        "{v}.masked_fill(torch.logical_not({v} != 0), 1)",
    ),
    (
        "torch.where({v} > 0, {v}, torch.full_like({v}, -0.5))",
        "torch.where({v} > 1, torch.zeros_like({v}), {v})",
        "{v}.new_ones({v}.shape).mul_({v})",
        "torch.zeros_like({v}).copy_({v})",
    ),
    ("-{v}", "{v}.neg_()", "torch.sin({v})", "torch.pow({v}, 0)", "torch.pow({v}, 1)"),
    (
        "0.5 * {v} * (1.0 + torch.tanh(0.7978845608028654 * ({v} + 0.044715 * {v} * {v} * {v})))",
        "0.5 * {v} * (1.0 + torch.tanh(0.7978845608028654 * ({v} + 0.044715 * torch.pow({v}, 3.0))))",
        "{v} * 0.5 * (1.0 + torch.tanh({v} * 0.79788456 * (1 + 0.044715 * {v} * {v})))",
    ),
    ("{v} * 0.5 * (1.0 + torch.erf({v} / 1.4142135623730951))", "{v} * torch.tanh(F.softplus({v}))"),
)
MODULES = (
    *(
        "nn.ReLU()",
        "nn.ReLU(inplace=True)",
        "nn.ReLU6()",
        "nn.LeakyReLU(0.1)",
        "nn.PReLU()",
        "nn.ELU()",
        "nn.SELU(inplace=True)",
    ),
    *(
        "nn.CELU(0.5)",
        "nn.GELU()",
        "nn.GELU(approximate='tanh')",
        "nn.SiLU()",
        "nn.Mish()",
        "nn.Sigmoid()",
        "nn.Hardsigmoid()",
    ),
    *(
        "nn.Hardswish(inplace=True)",
        "nn.Hardtanh(-2.0, 2.0)",
        "nn.Tanh()",
        "nn.Softplus()",
        "nn.Identity()",
        "nn.Dropout(0.5)",
    ),
)
# What does nothing in eval mode.
NOTHING = (
    *("F.dropout({v}, 0.5, False)", "F.dropout({v}, 0.3, self.training)", "F.dropout({v}, 0.5, False, inplace=True)"),
    *("F.alpha_dropout({v}, 0.5, False)", "{v}.contiguous()", "{v}.detach()", "{v}.float()", "{v}.type_as({v})"),
    *("{v}.to(torch.float32)", "{v} + 0", "{v} * 1"),
)
# Of two tensors. The in-place ones write the first named.
BINARY = (
    *(
        "{a} + {b}",
        "{b} + {a}",
        "torch.add({a}, {b})",
        "{a}.add_({b})",
        "{b}.add_({a})",
        "torch.add({a}, {b}, alpha={s})",
    ),
    *("{a} * {b}", "{b} * {a}", "{a}.mul_({b})", "torch.mul({b}, {a})", "{a} - {b}", "{b} - {a}", "{a}.sub_({b})"),
    *(
        "torch.add({b}, {a}, alpha={s})",
        "{a}.add_({b}, alpha={s})",
        "torch.sub({a}, {b}, alpha={s})",
        "torch.sub({b}, {a}, alpha={s})",
    ),
    *("{a} / {b}", "torch.div({b}, {a})", "{a}.div_({b})", "torch.maximum({a}, {b})", "torch.minimum({b}, {a})"),
    *("torch.div({a}, {b}, rounding_mode='floor')", "torch.rsub({a}, {b})", "torch.rsub({a}, {b}, alpha={s})"),
    *(
        "torch.max({a}, {b})",
        "torch.pow(torch.abs({a}), {b})",
        "torch.where({a} > 0, {a}, {b})",
        "torch.clamp({a}, {b})",
    ),
    *("torch.where({a} >= {b}, {b}, {a})", "torch.where(({a} > {b}) | ({b} < {s}), {a}, {b})"),
    *("torch.addcmul({a}, {a}, {b}, value={s})", "torch.lerp({a}, {b}, {s})"),
)
AUGMENTED = ("+=", "*=", "-=", "/=")
SCALAR = (
    *("{a} + {b}", "{b} + {a}", "{a} * {b}", "{b} * {a}", "{a} - {b}", "{b} - {a}", "{a} / {b}", "{b} / {a}"),
    *(
        "{a}.add_({b})",
        "{a}.mul_({b})",
        "{a}.sub_({b})",
        "{a}.div_({b})",
        "torch.add({a}, {b}, alpha={s})",
        "torch.mul({a}, {b})",
    ),
    *("torch.rsub({a}, {b})", "torch.sub({a}, {b}, alpha={s})", "torch.add({b}, {a})"),
)
# No True: TorchScript can't run what it traces of it.
NUMBERS = ("0.5", "2", "1", "-1.5", "0", "1e-3", "3.0", "100000.0")
ALPHAS = ("2", "1", "-1", "0.5", "1.0", "0")
