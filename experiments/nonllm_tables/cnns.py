"""CNNs of the tables: ResNet and its kin of DeepLearningExamples, DLPerf and Sia, and torchvision's networks in timm.

What a framework does with batch norm and the order of tensors follows from its name: MXNet of NVIDIA's containers and OneFlow
fuse norm, sum and ReLU; XLA fuses what follows the norm; PyTorch fuses nothing. In fp32 channels come first everywhere (the
default of these frameworks, and of the examples); in 16 bits they come last where the scripts say so, which DLPerf's of PyTorch
do not.
"""

from __future__ import annotations

import re
from dataclasses import replace

from experiments.nonllm_tables.row import TableRow
from experiments.nonllm_tables.rule import Made, ModelOf
from prism_jax.workload.catalog import workload
from prism_jax.workload.cnn.spec import CnnSpec

FAMILY = "cnn"
FUSING = ("MxNet", "NGC-MxNet", "OneFlow")  # frameworks whose batch norm takes sum and activation along
_FIRST = ("DLPerf PyTorch", "DLPerf NGC-PyTorch", "Sia aws", "Sia rtx")  # sources with channels first in 16 bits, too
_DLE = {"resnext101-32x4d": "resnext-101-32x4d", "se-resnext101-32x4d": "se-resnext-101-32x4d"}
_TIMM = {
    **{f"resnet{n}": f"resnet-{n}" for n in (18, 34, 50, 101, 152)},
    **{f"vgg{n}{tail}": f"vgg-{n}{tail.replace('_', '-')}" for n in (11, 13, 16, 19) for tail in ("", "_bn")},
    **{f"densenet{n}": f"densenet-{n}" for n in (121, 161, 169, 201)},
    **{f"efficientnet_b{n}": f"efficientnet-b{n}" for n in range(8)},
    **{f"tf_efficientnet_b{n}": f"efficientnet-b{n}" for n in range(8)},
    **{f"convnext_{size}": f"convnext-{size}" for size in ("tiny", "small", "base", "large")},
    "mobilenetv2_100": "mobilenet-v2",
    "mnasnet_100": "mnasnet-1.0",
    "inception_v3": "inception-v3",
    "resnext50_32x4d": "resnext-50-32x4d",
    "resnext101_32x4d": "resnext-101-32x4d",
    "resnext101_32x8d": "resnext-101-32x8d",
    "wide_resnet50_2": "wide-resnet-50-2",
    "wide_resnet101_2": "wide-resnet-101-2",
    "seresnext101_32x4d": "se-resnext-101-32x4d",
}


_TORCHVISION = {
    **{f"resnext{n}_32x{width}d": f"resnext-{n}-32x{width}d" for n, width in ((50, 4), (101, 8))},
    **{f"wide_resnet{n}_2": f"wide-resnet-{n}-2" for n in (50, 101)},
    **{f"mnasnet{wide.replace('.', '_')}": f"mnasnet-{wide}" for wide in ("0.5", "0.75", "1.0", "1.3")},
    **{f"shufflenet_v2_x{wide.replace('.', '_')}": f"shufflenet-v2-x{wide}" for wide in ("0.5", "1.0", "1.5", "2.0")},
    **{f"squeezenet1_{n}": f"squeezenet-1.{n}" for n in (0, 1)},
    **{name: preset for name, preset in _TIMM.items() if name.startswith(("resnet", "vgg", "densenet"))},
    "mobilenet_v2": "mobilenet-v2",
}


def _made(preset: str, row: TableRow) -> Made:
    model = workload(preset)
    assert isinstance(model, CnnSpec)
    last = row.layout == "nhwc" if row.layout else row.precision == "fp16" and row.source not in _FIRST
    fused = (("norm", "fused"),) if row.framework in FUSING else ()
    return Made(FAMILY, replace(model, image_size=row.image, channels_last=last), software=fused)


def _timm(row: TableRow) -> Made | None:
    name = _TIMM.get(row.name) if row.table == "timm" else None
    return None if name is None else _made(name, row)


def _torchvision(row: TableRow) -> Made | None:
    name = _TORCHVISION.get(row.name) if row.table == "iterations" else None
    return None if name is None else _made(name, row)


def _dle(row: TableRow) -> Made | None:
    found = re.search(r"Classification/(?:ConvNets/)?([\w.-]+)$", row.name)
    name = None if found is None else "resnet-50" if "50v1.5" in found[1] else _DLE.get(found[1])
    return None if name is None else _made(name, row)


MODELS = (
    ModelOf(r"\w+/Classification/", _dle),
    ModelOf(r"ResNet-50 v1\.5$", lambda row: _made("resnet-50", row)),
    ModelOf(r"imagenet$", lambda row: _made("resnet-50", row)),
    ModelOf(r"cifar10$", lambda row: _made("resnet-18-cifar", row)),
    ModelOf(r"\w+$", _timm),
    ModelOf(r"\w+$", _torchvision),
)
