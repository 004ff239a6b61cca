"""The head of a run from a command line of Megatron-LM: its arguments, with lines.

Flags become the names under which Megatron-LM prints its arguments: `--no-X` is X False, `--X` alone is True.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .head import SaidValue
from .launch_line import LaunchLine, NoTrainingError, flags_of
from .models import model_of_name
from .open_head import OpenHead
from .shell_values import ShellWord, is_open

MARKERS = ("tensor_model_parallel_size", "num_layers", "micro_batch_size")
OLD = ("checkpoint_activations", "DDP_impl", "model_parallel_size", "zero_stage", "deepspeed")  # before Megatron-Core
OF_CORE = {  # defaults of Megatron-Core
    "sequence_parallel": "False",
    "transformer_impl": "transformer_engine",
    "overlap_grad_reduce": "False",
    "use_distributed_optimizer": "False",
}
INVERSE = re.compile(r"no_(?=masked_softmax|gradient_accumulation|bias_|rope_fusion|position|persist|scaled)")
TOKENIZERS = {  # rows of the vocabularies that tokenizers of Megatron-LM have by themselves
    "GPT2BPETokenizer": 50257,
    "BertWordPieceCase": 28996,
    "BertWordPieceLowerCase": 30522,
    "Llama2Tokenizer": 32000,
}
NAMED_TOKENIZERS = ("tokenizer_model", "tokenizer_name_or_path", "tokenizer_path", "hf_checkpoint", "model")
NO_DECODERS = (  # names of programs, and why no job can be made of what they do
    (r"(?:^|[_/.])t5(?:[_/.]|$)|encoder_decoder", "trains an encoder and a decoder, which no field of a job describes"),
    (r"retro|realm|(?:^|_)ict(?:_|\.)", "trains a model with retrieval, which no field of a job describes"),
    (
        r"vision|vlm|llava|multimodal|mimo|clip|(?:^|/)\w*dit_",
        "trains a model of images, which no field of a job describes",
    ),
    (r"mamba|hybrid", "trains layers with Mamba or others in a pattern, which no field of a job describes"),
    (
        r"infer|generat|server|serve|convert|checkpoint|hf2|2hf|export|quantiz|prune|evaluat|preprocess|tasks/",
        "is no training",
    ),
)


def is_megatron(line: LaunchLine) -> bool:
    """Whether a command line has arguments of Megatron-LM."""
    return sum(marker in line.names for marker in MARKERS) >= 2


def megatron_head(line: LaunchLine) -> OpenHead:
    """Reads a command line of Megatron-LM.

    Raises:
        NoTrainingError: it trains nothing, or no decoder and no BERT.
    """
    head, program = line.head(), line.parts.program
    if (why := next((why for pattern, why in NO_DECODERS if re.search(pattern, program)), "")) != "":
        raise NoTrainingError(
            f"{line.path}: line {line.command.line}: {program} {why}. Name a script that trains a decoder or BERT."
        )
    take_flags(head, line)
    if not any(name in head.arguments for name in OLD):
        for name, value in OF_CORE.items():
            head.arguments.setdefault(name, SaidValue(value, 0, ""))
    put_vocabulary(head)
    return head


def take_flags(head: OpenHead, line: LaunchLine) -> None:
    """Takes the flags of a command line as arguments of Megatron-LM."""
    loose: list[ShellWord] = []
    take_arguments(head, flags_of(line.parts.arguments, line.script, loose))
    for word in loose:  # an open one may hold more arguments; a variable that is never set holds none
        head.undecided += [one for one in head.open.inside(word.text) if one.is_undecided or line.script.missing]


def take_arguments(head: OpenHead, given: Mapping[str, SaidValue]) -> None:
    """Takes flags by name under the names that Megatron-LM prints: `no_X` is X False."""
    for name, said in given.items():
        off = INVERSE.match(name) is not None and said.text == "True"
        head.arguments[name[3:] if off else name] = said._replace(text="False", name=name[3:]) if off else said


def put_vocabulary(head: OpenHead) -> None:
    """Rows of the vocabulary that the tokenizer has, where no argument says it."""
    kind = head.arguments.get("tokenizer_type")
    if head.arguments.keys() & {"vocab_size", "padded_vocab_size"}:
        return
    rows = TOKENIZERS.get(kind.text) if kind is not None else None
    said = kind
    names = (head.arguments.get(name) for name in NAMED_TOKENIZERS)
    model = next((one for one in names if one is not None and not is_open(one.text)), None)
    if rows is None and model is not None and (preset := model_of_name(model.text)) is not None:
        from ..workload.catalog import workload

        rows, said = getattr(workload(preset), "vocab", None), model
    if rows is not None and said is not None:
        head.asked.add(said.name)
        head.arguments["vocab_size"] = SaidValue(str(rows), said.line, said.name)
