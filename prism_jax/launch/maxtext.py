"""MaxText from what its users write: `base.yml`, the YAML of a model, and KEY=VALUE of a command line, also inside of xpk.

The values are those of `Config param` of a log, resolved as MaxText does: base, then model, then command line. Its defaults and
sizes of models that no preset has are tables here.
Source: MaxText `configs/base.yml`, `configs/models/*.yml`, `get_individual_scales`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import log2, prod

from ..tables.document import Document
from .config_files import Carrier, ConfigFiles, said_of
from .head import Head, SaidValue, plain_number, without_line
from .launch_line import LaunchLine, LaunchProgram
from .said import MAXTEXT
from .shell_values import ShellWord, is_open
from .stated import literal

DEFAULTS = {
    "model_name": "default",
    "per_device_batch_size": "12.0",
    "max_target_length": "2048",
    "remat_policy": "full",
    "dtype": "bfloat16",
    "gradient_accumulation_steps": "1",
    "ici_fsdp_parallelism": "-1",
    "dcn_data_parallelism": "-1",
}
DEFAULT_MODEL = {
    "base_emb_dim": "2048",
    "base_num_query_heads": "16",
    "base_num_kv_heads": "16",
    "base_mlp_dim": "7168",
    "base_num_decoder_layers": "16",
    "head_dim": "128",
    "vocab_size": "32000",
    "mlp_activations": "['silu', 'linear']",
    "logits_via_embedding": "False",
    "decoder_block": "llama2",
}
OF_MODEL = (
    *DEFAULT_MODEL, "num_experts", "num_experts_per_tok", "base_moe_mlp_dim", "shared_experts", "first_num_dense_layers",
    "attention_type", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "use_qk_norm",
    "global_parameter_scale", "normalization_layer_epsilon", "sliding_window_size", "enable_dropout", "attention_bias",
    "mtp_num_layers",
)  # fmt: skip
# Layers, hidden, heads, key heads, width of a head, of the MLP, vocabulary; a block of gemma2 is two layers.
MODELS = {
    "gpt3-52k": (1, 16, 2, 2, 8, 64, 1024, "gpt3"),
    "gpt3-6b": (48, 3072, 12, 12, 256, 12288, 32768, "gpt3"),
    "gpt3-22b": (48, 6144, 24, 24, 256, 24576, 32768, "gpt3"),
    "gemma-2b": (18, 2048, 8, 1, 256, 16384, 256128, "gemma"),
    "gemma-7b": (28, 3072, 16, 16, 256, 24576, 256128, "gemma"),
    "gemma2-2b": (26, 2304, 8, 4, 256, 9216, 256128, "gemma2"),
    "gemma2-9b": (42, 3584, 16, 8, 256, 14336, 256128, "gemma2"),
    "gemma3-4b": (34, 2560, 8, 4, 256, 10240, 262144, "gemma3"),
    "gemma3-12b": (48, 3840, 16, 8, 256, 15360, 262144, "gemma3"),
}
SAME = {
    "deepseek2-16b": "deepseek-v2-lite",
    "deepseek2-236b": "deepseek-v2",
    "deepseek3-671b": "deepseek-v3",
    "kimi-k2-1t": "kimi-k2",
    "llama4-17b-16e": "llama-4-scout",
    "llama4-17b-128e": "llama-4-maverick",
}
_SIZES = (
    "base_num_decoder_layers", "base_emb_dim", "base_num_query_heads", "base_num_kv_heads", "head_dim",
    "base_mlp_dim", "vocab_size", "decoder_block",
)  # fmt: skip
_AXIS = re.compile(r"(?:ici|dcn)_\w+_parallelism")
_SLICE = re.compile(r"(v\d+[a-z]*(?:pod)?|tpu7x)-(\d{1,6})")  # v5p-256, v5litepod-16
CORES = ("v2", "v3", "v4", "v5p")  # whose slices are counted in cores, two to a chip
_OF_GPUS = re.compile(r"(?:a3|h100|h200|b200|a100|gb200)[\w-]*?-(\d{1,2})(?:g|$)")
DEVICES = {
    "v4": "tpu-v4",
    "v5e": "tpu-v5e",
    "v5litepod": "tpu-v5e",
    "v5p": "tpu-v5p",
    "v6e": "tpu-v6e",
    "tpu7x": "tpu-v7x",
}


def is_maxtext(document: Document) -> bool:
    """Whether a document is one of MaxText."""
    names = ("base_emb_dim", "base_num_decoder_layers", "per_device_batch_size", "base_config", "ici_fsdp_parallelism")
    return any(name in document.data for name in names) and "model_name_or_path" not in document.data


def read_maxtext(files: ConfigFiles) -> Head:
    """Head of the training that configurations of MaxText and KEY=VALUE texts state together."""
    head = files.head(MAXTEXT)
    documents = [one for one in (files.main, *files.others) if is_maxtext(one)]
    base = files.main.data.get("base_config")
    followed = files.follow(base) if isinstance(base, str) else None
    put_maxtext(head, [*([followed] if followed else []), *documents], files.words_said())
    return head


def put_maxtext(head: Head, documents: list[Document], words: Mapping[str, SaidValue]) -> None:
    """Resolves the layers of a configuration into a head.

    Args:
        documents: bases, configurations of runs and of models.
        words: of the command line.
    """
    bases = [one for one in documents if "run_name" in one.data or "steps" in one.data]
    models = [one for one in documents if one not in bases]
    own: dict[str, SaidValue] = {}
    for one in (*bases, *models):
        own |= _several(said_of(one))
    named = words.get("model_name") or own.get("model_name") or SaidValue("default", 0, "model_name")
    if models:
        named = named._replace(text="default")
        _gemma2(own)
    elif named.text != "default":  # sizes of the base are of no model
        own = {name: one for name, one in own.items() if name not in OF_MODEL} | _known_sizes(named)
        named = named._replace(text="default" if named.text in MODELS else SAME.get(named.text, named.text))
    own |= {**words, "model_name": named}
    _size(head, own)
    usual = DEFAULTS | (DEFAULT_MODEL if named.text == "default" else {})
    own = without_line(usual) | own
    _scale(own)
    head.arguments |= own


def _gemma2(own: dict[str, SaidValue]) -> None:
    """Two layers are one block in a model of gemma2."""
    kind, layers = own.get("decoder_block"), own.get("base_num_decoder_layers")
    if kind is not None and kind.text == "gemma2" and layers is not None and (n := plain_number(layers)) is not None:
        own["base_num_decoder_layers"] = layers._replace(text=str(2 * n))


def _known_sizes(named: SaidValue) -> dict[str, SaidValue]:
    """Sizes of a model that MaxText has and no preset is."""
    sizes = MODELS.get(named.text)
    if sizes is None:
        return {}
    gates = "['gelu']" if sizes[-1] == "gpt3" else "['gelu', 'linear']"
    values = dict(zip(_SIZES, map(str, sizes), strict=True))
    values |= {"mlp_activations": gates, "logits_via_embedding": "True"}
    return {name: named._replace(text=text) for name, text in values.items()}


def _several(said: Mapping[str, SaidValue]) -> dict[str, SaidValue]:
    """Values with a number in the place of 262_144, which YAML leaves as text."""
    return {name: one._replace(text=one.text.replace("_", "")) if re.fullmatch(r"\d[\d_]*", one.text) else one
            for name, one in said.items()}  # fmt: skip


def _scale(own: dict[str, SaidValue]) -> None:
    """Sizes that a global scale multiplies: heads and MLP first, then the hidden size, then layers."""
    said = own.get("global_parameter_scale")
    scale = literal(said.text) if said is not None else 1
    if said is None or not isinstance(scale, (int, float)) or scale <= 1 or not log2(scale).is_integer():
        return
    whole, rest = divmod(int(log2(scale)), 3)
    times = {"emb_dim": whole + (rest > 1), "num_query_heads": whole + (rest > 0), "num_kv_heads": whole + (rest > 0)}
    times |= {"mlp_dim": whole + (rest > 0), "num_decoder_layers": whole}
    for name, power in times.items():
        base = own.get(f"base_{name}")
        if base is not None and (size := plain_number(base)) is not None:
            own[name] = base._replace(text=str(size * 2**power), name=f"base_{name} x 2^{power} of the global scale")


def _size(head: Head, own: dict[str, SaidValue]) -> None:
    """Devices that are given or that the degrees make; and the slices that an open axis between them takes."""
    stated = {name: literal(one.text) for name, one in own.items() if _AXIS.fullmatch(name)}
    sizes = {"ici_fsdp_parallelism": -1, "dcn_data_parallelism": -1} | stated
    inner = [size for name, size in sizes.items() if name.startswith("ici") and isinstance(size, int)]
    outer = [size for name, size in sizes.items() if name.startswith("dcn") and isinstance(size, int)]
    within, between = (prod(size for size in some if size > 0) for some in (inner, outer))
    has_open = -1 in inner or any(is_open(own[name].text) for name in stated)
    slices = own.get("num_slices")
    n_stated = plain_number(slices)
    n_slices = between if n_stated is None else n_stated
    said = head.said("world_size")
    if said is not None and (n := plain_number(said)) is not None:
        own["num_devices"] = said
        n_slices = n_slices if has_open else max(n // within, 1)
    elif not has_open:
        first = next(name for name in stated if name.startswith("ici"))
        own["num_devices"] = own[first]._replace(
            text=str(within * max(n_slices, between)), name="product of the degrees"
        )
        if -1 in outer and slices is None:
            head.notes.append(
                f"one slice of {within} devices, as its degrees make; --gpus says how many there are of several"
            )
    open_axis = next((name for name, size in sizes.items() if size == -1 and name.startswith("dcn")), None)
    if open_axis is not None:
        where = own.get(open_axis) or SaidValue("", 0, open_axis)
        own[open_axis] = where._replace(text=str(max(n_slices // between, 1)))


# --- Command lines ---------------------------------------------------------------------------------------------------

_TRAINS = re.compile(
    r"(?i)maxtext[\w./-]*[./](?:train|train_compile|train_sft|sft_trainer|sft|train_tunix|elastic_train)(?:\.py)?(?=\s|$)"
)
_OF_MAXTEXT = re.compile(r"(?i)maxtext[\w./-]*[./]\w+(?:\.py)?\s")
_CONFIG = re.compile(r"(?i)configs?[\w./-]*/[\w.-]+\.ya?ml|base\.yml")


def _words(line: LaunchLine) -> list[ShellWord]:
    """Words of the command line, those of a command that is quoted in it included."""
    found: list[ShellWord] = []
    for word in line.command.words:
        text = word.text
        if " " in text and _OF_MAXTEXT.search(text):
            name, equals, inner = text.partition("=")
            text = inner if equals and name.startswith("-") and " " not in name else text
            for part in re.split(r";|&&|\n", text):
                if _OF_MAXTEXT.search(f"{part} "):
                    found += [ShellWord(one, word.line) for one in _split(part)]
        else:
            found.append(word)
    return found


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _is_mine(line: LaunchLine) -> bool:
    text = " ".join(word.text for word in _words(line))
    return _OF_MAXTEXT.search(text) is not None and (_CONFIG.search(text) is not None or "model_name=" in text)


def _read(line: LaunchLine) -> Head:
    """Head of the training that a command line of MaxText starts.

    Raises:
        NoTrainingError: it decodes or converts.
    """
    words = _words(line)
    text = " ".join(word.text for word in words)
    if _TRAINS.search(text) is None:
        program = next(
            (word.text for word in words if "axtext" in word.text.lower() and not word.text.endswith(".yml")), "it"
        )
        raise line.no_training(f"{line.shown(program)} is no training")
    head = line.head(MAXTEXT)
    pairs: dict[str, SaidValue] = {}
    documents: list[Document] = []
    for word in words:
        name, equals, value = word.text.partition("=")
        if equals and re.fullmatch(r"\w{1,80}", name):
            pairs[name] = SaidValue(value.strip("'\"")[:400], word.line, name)
        elif word.text.endswith((".yml", ".yaml")) and not equals:
            found = line.follow(word.text)
            documents += [found] if found is not None and is_maxtext(found) else []
            if found is None and "/models/" in word.text and "model_name" not in pairs:
                stem = word.text.rpartition("/")[2].rpartition(".")[0].replace("_", "-")
                pairs["model_name"] = SaidValue(stem, word.line, "model_name")
    _slices(head, words, pairs)
    put_maxtext(head, documents, pairs)
    return head


def _slices(head: Head, words: list[ShellWord], pairs: dict[str, SaidValue]) -> None:
    """Devices that xpk or the topology of a compilation says."""
    options = dict(_options(words))
    kind = options.get("tpu_type") or options.get("device_type") or pairs.get("compile_topology")
    count = options.get("num_slices") or options.get("num_nodes") or pairs.get("compile_topology_num_slices")
    if kind is None or "world_size" in head.arguments:
        return
    n_slices = 1 if count is None else plain_number(count)
    if n_slices is None:
        return
    tpu, gpu, told = _SLICE.search(kind.text), _OF_GPUS.search(kind.text), f"{kind.name} = {kind.text[:40]}"
    if tpu is not None:
        chips = int(tpu[2]) // (2 if tpu[1] in CORES else 1)
        head.arguments["world_size"] = kind._replace(text=str(chips * n_slices), name=told)
        pairs.setdefault("num_slices", kind._replace(text=str(n_slices)))
        if tpu[1] in DEVICES:
            head.facts["gpu"] = kind._replace(text=DEVICES[tpu[1]])
    elif gpu is not None:
        head.arguments["world_size"] = kind._replace(text=str(int(gpu[1]) * n_slices), name=told)


def _options(words: list[ShellWord]) -> Iterator[tuple[str, SaidValue]]:
    for word, after in pairwise([*words, ShellWord("", 0)]):
        name, equals, value = word.text.partition("=")
        if name.startswith("--"):
            plain = name[2:].replace("-", "_")
            yield plain, SaidValue(value if equals else after.text, word.line, plain)


MAXTEXT_CARRIER = Carrier("MaxText", is_maxtext, read_maxtext)
MAXTEXT_PROGRAM = LaunchProgram("MaxText (MaxText.train base.yml KEY=VALUE)", _is_mine, _read)
