"""Vision transformers by name, and what the fields are that only they have."""

from __future__ import annotations

from dataclasses import replace

from .dit import DitSpec
from .vit import VitSpec

VIT_WORDS = {
    "image_size": "pixels along one side of an image",
    "patch": "pixels along one side of a patch",
    "n_channels": "of an image",
    "n_classes": "classes that are told apart",
    "n_extra_tokens": "class token, distillation token",
}
DIT_WORDS = {
    "latent_size": "numbers along one side of a latent; 32: images of 256 pixels",
    "patch": "numbers along one side of a patch",
    "n_channels": "of a latent",
    "n_classes": "labels that condition",
    "learns_variance": "variances are predicted, too: twice as many channels",
}
_VIT = "arXiv 2010.11929 table 1"
_DEIT = "arXiv 2012.12877 table 1"
_DIT = "arXiv 2212.09748 table 1"

_b16 = VitSpec("vit-b-16", 12, 768, 12, 3072, source=_VIT)
_l16 = replace(_b16, name="vit-l-16", n_layers=24, hidden=1024, n_heads=16, ffn_hidden=4096)
VITS = (
    _b16,
    _l16,
    replace(_l16, name="vit-h-14", n_layers=32, hidden=1280, ffn_hidden=5120, patch=14),
    replace(_b16, name="deit-tiny-16", hidden=192, n_heads=3, ffn_hidden=768, source=_DEIT),
    replace(_b16, name="deit-small-16", hidden=384, n_heads=6, ffn_hidden=1536, source=_DEIT),
)
_xl2 = DitSpec("dit-xl-2", 28, 1152, 16, 4608, source=_DIT)
DITS = (
    replace(_xl2, name="dit-s-2", n_layers=12, hidden=384, n_heads=6, ffn_hidden=1536),
    replace(_xl2, name="dit-b-2", n_layers=12, hidden=768, n_heads=12, ffn_hidden=3072),
    replace(_xl2, name="dit-l-2", n_layers=24, hidden=1024, n_heads=16, ffn_hidden=4096),
    _xl2,
)
