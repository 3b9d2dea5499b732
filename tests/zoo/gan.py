"""The generator of DCGAN: transposed convolutions from a point to an image."""

from torch import Tensor, nn


def up(width_in: int, width: int, stride: int, padding: int) -> list[nn.Module]:
    """A transposed 4x4 convolution, its batch_norm, relu."""
    conv = nn.ConvTranspose2d(width_in, width, 4, stride, padding, bias=False)
    return [conv, nn.BatchNorm2d(width), nn.ReLU(True)]


class Generator(nn.Module):
    """From 1x1 to 32x32, with tanh at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *up(32, 32, 1, 0),
            *up(32, 16, 2, 1),
            *up(16, 8, 2, 1),
            nn.ConvTranspose2d(8, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, z: Tensor) -> Tensor:
        return self.layers(z)
