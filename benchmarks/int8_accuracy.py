"""Trains two small networks on the handwritten digits that scikit-learn brings, and shows what quantising costs them.

    pip install scikit-learn && python benchmarks/int8_accuracy.py

A convolutional network and a transformer of image rows; half of the digits train, half test. Prints the accuracy in
float32, in int8 by each recipe and, where they are installed, by ONNX Runtime and OpenVINO.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from int8_models import peers
from ipex.quantization import Recipe, convert, prepare

RECIPES = {
    "min_max": Recipe("min_max"),
    "moving_average": Recipe("moving_average"),
    "percentile": Recipe("percentile"),
    "mean_squared_error": Recipe("mean_squared_error"),
    "mean_squared_error, smooth": Recipe(smooth=0.5),
}


class Rows(nn.Module):
    """A transformer that reads an image row by row."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True, norm_first=True)
        self.first, self.places = nn.Linear(8, 64), nn.Parameter(torch.randn(8, 64) * 0.1)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Classify."""
        return self.last(self.layers(self.first(x.squeeze(1)) + self.places).mean(1))


def convolutions() -> nn.Module:
    """Three convolutions with batch_norm."""

    def block(before: int, after: int) -> list[nn.Module]:
        return [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]

    return nn.Sequential(
        *block(1, 16), *block(16, 32), nn.MaxPool2d(2), *block(32, 32), nn.Flatten(), nn.Linear(512, 10)
    )


def trained(make: Callable[[], nn.Module], x: Tensor, y: Tensor) -> nn.Module:
    """Train for 30 passes over the data."""
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(30):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model.eval()


def main() -> None:
    """Print a table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    warnings.simplefilter("ignore")
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    seen = list(images[train].split(128))
    print("| network | arithmetic | accuracy |\n|---|---|---|")
    for name, make in {"convolutions": convolutions, "transformer": Rows}.items():
        model = trained(make, images[train], labels[train])

        def show(arithmetic: str, call: Callable[[Tensor], Tensor], name: str = name) -> None:
            right = torch.cat([torch.as_tensor(call(x)).argmax(1) for x in images[test].split(128)[:-1]])
            print(
                f"| {name} | {arithmetic} | {(right == labels[test][: len(right)]).double().mean():.4f} |", flush=True
            )

        with torch.no_grad():
            show("float32", model)
            for text, recipe in RECIPES.items():
                prepared = prepare(model, seen[0], recipe)
                for batch in seen:
                    prepared(batch)
                show(f"ipex int8, {text}", convert(prepared))
            for peer, call in peers(model, name, seen[:-1], threads=torch.get_num_threads()):
                show(f"{peer} int8", lambda x, call=call: call(x.numpy()))


if __name__ == "__main__":
    main()
