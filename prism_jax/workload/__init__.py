"""Model architectures: exact parameter and FLOP counts, presets, and Hugging Face configurations."""

from .catalog import (
    model as model,
    model_names as model_names,
)
from .hugging_face.config import (
    model_from_hf as model_from_hf,
    read_hf_config as read_hf_config,
    transformer_from_hf as transformer_from_hf,
)
from .kinds import KINDS as KINDS, WorkloadKind as WorkloadKind
from .transformer.params import LayerParams as LayerParams
from .transformer.spec import (
    AdapterSpec as AdapterSpec,
    MLASpec as MLASpec,
    MoESpec as MoESpec,
    TransformerSpec as TransformerSpec,
    WindowSpec as WindowSpec,
)
