"""Made the files beside this one, with torch 2.8.0 and intel_extension_for_pytorch 2.8.0: python make.py

Each NAME.pt is what IPEX saved. NAME.values.pt holds inputs and the results to be expected: those of the model before
IPEX had it, or of IPEX where weights are codes of few bits. Where each line of code came from is left out.
"""

import copy
import io
import zipfile

import intel_extension_for_pytorch as ipex
import torch
from torch import nn


class Convolutions(nn.Module):
    """Groups, dilation, output_padding, a residual, and a layer without a bias."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.grouped = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4)
        self.transposed = nn.ConvTranspose2d(8, 6, 3, stride=2, output_padding=1, groups=2)

    def forward(self, x):
        y = torch.relu(self.first(x))
        return self.transposed(torch.relu(self.grouped(y) + y))


class OfDimensions(nn.Module):
    def __init__(self, one, back):
        super().__init__()
        self.one, self.back = one, back

    def forward(self, x):
        return self.back(torch.relu(self.one(x)))


class Linears(nn.Module):
    def __init__(self, inputs=16, outputs=4):
        super().__init__()
        self.first, self.second = nn.Linear(inputs, 24), nn.Linear(24, outputs, bias=False)
        self.unused = nn.Linear(4, 4)

    def forward(self, x):
        y = self.second(nn.functional.gelu(self.first(x)))
        self.unused(y)
        return y


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.last = nn.LSTM(6, 8, 2, batch_first=True, bidirectional=True), nn.Linear(16, 4)

    def forward(self, x):
        y, (h, c) = self.lstm(x)
        return self.last(y), h, c


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.bags, self.last = nn.EmbeddingBag(20, 8, mode="sum"), nn.Linear(8, 4)

    def forward(self, indices, offsets):
        return self.last(self.bags(indices, offsets))


def traced(model, x, **options):
    return torch.jit.trace(ipex.optimize(model, **options), x, check_trace=False)


def frozen(model, x, **options):
    module = torch.jit.freeze(traced(model, x, **options))
    module(*copy.deepcopy(x))  # IPEX fuses here
    module(*copy.deepcopy(x))
    return module


def scripted(model, x):
    return torch.jit.script(ipex.optimize(model))


def onednn(model, x):
    return frozen(model, x, auto_kernel_selection=True)


def bfloat16(model, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return traced(model, x, dtype=torch.bfloat16)


def bfloat16_frozen(model, x):
    return torch.jit.freeze(bfloat16(model, x))


def quantized(model, x):
    prepared = ipex.quantization.prepare(model, ipex.quantization.default_static_qconfig_mapping, example_inputs=x)
    prepared(*x)
    return torch.jit.freeze(torch.jit.trace(ipex.quantization.convert(prepared), x, check_trace=False))


def weight_only(dtype, group_size=-1):
    def way(model, x):
        config = ipex.quantization.get_weight_only_quant_qconfig_mapping(weight_dtype=dtype, group_size=group_size)
        prepared = ipex.quantization.prepare(model, config, example_inputs=x, inplace=False)
        return torch.jit.trace(ipex.quantization.convert(prepared), x, check_trace=False)

    return way


image, row = (torch.randn(1, 3, 8, 8),), (torch.randn(3, 16),)
sequence, bags = (torch.randn(2, 5, 6),), (torch.randint(0, 20, (9,)), torch.tensor([0, 3, 5]))
codes = ipex.quantization.WoqWeightDtype
FILES = {
    "convolutions_traced": (Convolutions, image, traced),
    "convolutions_frozen": (Convolutions, image, frozen),
    "convolutions_scripted": (Convolutions, image, scripted),
    "convolutions_bfloat16": (Convolutions, image, bfloat16),
    "convolutions_int8": (Convolutions, image, quantized),
    "one_dimension": (
        lambda: OfDimensions(nn.Conv1d(4, 8, 3, padding=1), nn.ConvTranspose1d(8, 2, 2, stride=2)),
        (torch.randn(2, 4, 9),),
        frozen,
    ),
    "three_dimensions": (
        lambda: OfDimensions(nn.Conv3d(2, 4, 3, padding=1), nn.ConvTranspose3d(4, 2, 2, stride=2)),
        (torch.randn(1, 2, 3, 4, 5),),
        bfloat16_frozen,
    ),
    "linears_traced": (Linears, row, traced),
    "linears_frozen": (Linears, row, frozen),
    "linears_onednn": (Linears, row, onednn),
    "linears_bfloat16": (Linears, row, bfloat16),
    "weight_only_int8": (Linears, row, weight_only(codes.INT8)),
    "weight_only_int4": (Linears, row, weight_only(codes.INT4, group_size=8)),
    "weight_only_nf4": (Linears, row, weight_only(codes.NF4)),
    "recurrent_frozen": (Recurrent, sequence, frozen),
    "recurrent_bfloat16": (Recurrent, sequence, bfloat16),
    "bags": (Bags, bags, traced),
}


def save(module, path):
    content = io.BytesIO()
    torch.jit.save(module, content)
    with zipfile.ZipFile(content) as whole, zipfile.ZipFile(path, "w") as file:
        for record in whole.namelist():
            if not record.endswith(".debug_pkl"):
                file.writestr(zipfile.ZipInfo(record), whole.read(record))


for name, (build, x, way) in FILES.items():
    torch.manual_seed(1)
    model = build().eval()
    with torch.no_grad():
        expected = model(*copy.deepcopy(x))
        module = way(model, copy.deepcopy(x))
        save(module, f"{name}.pt")
        if name.startswith("weight_only"):
            expected = module(*x)
    torch.save((x, expected), f"{name}.values.pt")
