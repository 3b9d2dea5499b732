"""Small models of well-known families with random weights: the real topology, fewer and narrower layers.

MODELS is the one list of them. The tests of whole models and the table in docs/models.md go through it.
"""

from zoo.densenet import DenseNet
from zoo.dlrm import DLRM, clicks
from zoo.gan import Generator
from zoo.hugging_face import HUGGING_FACE
from zoo.inception import Inception
from zoo.inverted_residual import efficientnet, mobilenet_v2, mobilenet_v3
from zoo.model import Model, floats, image, integers
from zoo.resnet import ResNet
from zoo.shufflenet import ShuffleNet
from zoo.taggers import Tagger
from zoo.unet import UNet
from zoo.vgg import VGG

IMAGES = (lambda: (image(1, 3, 64, 64),), lambda: (image(3, 3, 48, 80),))
SENTENCES = (lambda: (integers(2, 12),), lambda: (integers(5, 7),))

MODELS = {
    model.name: model
    for model in (
        Model("ResNet-18", lambda: ResNet("basic", (2, 2)), IMAGES),
        Model("ResNet-50", lambda: ResNet("bottleneck", (1, 2)), IMAGES),
        Model("ResNeXt", lambda: ResNet("bottleneck", (1, 2), groups=4), IMAGES),
        Model("MobileNet V2", mobilenet_v2, IMAGES),
        Model("MobileNet V3", mobilenet_v3, IMAGES),
        Model("EfficientNet", efficientnet, IMAGES),
        Model("ShuffleNet V2", ShuffleNet, IMAGES),
        Model("DenseNet", DenseNet, IMAGES),
        Model("Inception V3", Inception, (lambda: (image(1, 3, 64, 64),), lambda: (image(2, 3, 80, 72),))),
        Model("VGG", lambda: VGG(norm=False), IMAGES),
        Model("VGG with batch_norm", lambda: VGG(norm=True), IMAGES),
        Model("U-Net, transposed convolutions", lambda: UNet("transposed"), IMAGES),
        Model("U-Net, bilinear", lambda: UNet("bilinear"), IMAGES),
        Model("DCGAN generator", Generator, (lambda: (floats(1, 32, 1, 1),), lambda: (floats(3, 32, 1, 1),))),
        *HUGGING_FACE,
        Model("LSTM tagger", lambda: Tagger("lstm"), SENTENCES),
        Model("GRU tagger", lambda: Tagger("gru"), SENTENCES),
        Model("DLRM", DLRM, (lambda: clicks(4), lambda: clicks(9))),
    )
}

__all__ = ["MODELS", "Model"]
