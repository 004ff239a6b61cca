"""Model architectures: exact parameter and FLOP counts, presets, and Hugging Face configurations."""

from .catalog import (
    PublishedCount as PublishedCount,
    model as model,
    model_names as model_names,
    published_params as published_params,
)
from .params import LayerParams as LayerParams
from .transformer import MLASpec as MLASpec, MoESpec as MoESpec, TransformerSpec as TransformerSpec
