"""Meaning of the names in a profile: annotations of ops, steps, kinds of communication, classes of kernels.

An op is annotated with `torch.profiler.record_function("forward-compute mb=3 chunk=0")`: one of `trace.pipeline.OP_TYPES`, then
fields. The names that Megatron-LM, DeepSpeed and PyTorch's own pipeline schedules use are understood too.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from ..trace.pipeline import (
    BACKWARD,
    BACKWARD_RECV as B_RECV,
    BACKWARD_SEND as B_SEND,
    FORWARD,
    FORWARD_RECV as F_RECV,
    FORWARD_SEND as F_SEND,
    GATHER,
    OP_TYPES,
    OPTIMIZER,
    SCATTER,
    SEPARATE,
)
from ..trace.trace import NONE

MAX_DIGITS = 9
STEP = "ProfilerStep#"
TORCH_OPTIMIZER = "Optimizer.step#"  # followed by the class, recorded by PyTorch itself
TORCH_PIPELINE = re.compile(r"PP:(\d{1,9})(F|B|SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|REDUCE_GRAD)(\d{0,9})")
ALIASES: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in OP_TYPES},
    "forward_step": (FORWARD,),
    "backward_step": (BACKWARD,),
    "Forward": (FORWARD,),
    "Backward": (BACKWARD,),
    "forward_microstep": (FORWARD,),
    "backward_microstep": (BACKWARD,),
    "optimizer.step": (OPTIMIZER,),
    "optimizer_step": (OPTIMIZER,),
    "step_microstep": (OPTIMIZER,),
    "all-grads-sync": (SCATTER,),
    "backward_allreduce_microstep": (SEPARATE,),
    # Megatron-LM: one call may send and receive
    "recv_forward": (F_RECV,),
    "recv_backward": (B_RECV,),
    "send_forward": (F_SEND,),
    "send_backward": (B_SEND,),
    "forward_recv": (F_RECV,),
    "backward_recv": (B_RECV,),
    "forward_send": (F_SEND,),
    "backward_send": (B_SEND,),
    "send_forward_recv_backward": (F_SEND, B_RECV),
    "send_backward_recv_forward": (B_SEND, F_RECV),
    "send_forward_recv_forward": (F_SEND, F_RECV),
    "send_backward_recv_backward": (B_SEND, B_RECV),
    "send_forward_backward_recv_forward_backward": (F_SEND, B_SEND, F_RECV, B_RECV),
    "forward-send-backward-recv": (F_SEND, B_RECV),
    "backward-send-forward-recv": (B_SEND, F_RECV),
    "forward-send-forward-recv": (F_SEND, F_RECV),
    "backward-send-backward-recv": (B_SEND, B_RECV),
    # DeepSpeed
    "pipe_send_output": (F_SEND,),
    "pipe_recv_input": (F_RECV,),
    "pipe_send_grad": (B_SEND,),
    "pipe_recv_grad": (B_RECV,),
    # PyTorch's pipeline schedules
    "F": (FORWARD,),
    "B": (BACKWARD,),
    "SEND_F": (F_SEND,),
    "RECV_F": (F_RECV,),
    "SEND_B": (B_SEND,),
    "RECV_B": (B_RECV,),
    "UNSHARD": (GATHER,),
    "REDUCE_GRAD": (SCATTER,),
}
PIPELINE_ONLY = ("F", "B", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "UNSHARD", "REDUCE_GRAD")
FIELDS = {"mb": "micro_batch", "micro_batch": "micro_batch", "microbatch": "micro_batch", "chunk": "chunk"}
KINDS = (  # the first that is part of a name, of which only letters are looked at
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("reducescatter", "reduce_scatter"),
    ("alltoall", "all_to_all"),
    ("collectivepermute", "collective_permute"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("sendrecv", "send_recv"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("send", "send"),
    ("recv", "recv"),
)
END_TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
_COLLECTIVE = re.compile(
    r"(void )?(nccl|rccl|mscclpp|msccl)|"
    r"(all-reduce|all-gather|reduce-scatter|(ragged-)?all-to-all|collective-(permute|broadcast)|(send|recv)(-done|-start)?(\.\d+)?$)"
)  # kernels of libraries; operations of XLA
_NOT_LETTERS = re.compile(r"[^a-z]+")


class Annotation(NamedTuple):
    """An annotated op.

    Attributes:
        op_types: of `OP_TYPES`; several where one call sends and receives.
        micro_batch, chunk: `NONE` where the name does not say; `chunk` counts within the stage.
        model_chunk: in model order over all stages, `NONE` where the name does not say.
    """

    op_types: tuple[str, ...]
    micro_batch: int = NONE
    chunk: int = NONE
    model_chunk: int = NONE


def annotation(name: str) -> Annotation | None:
    """Reads the annotation `name`; None for names that mean nothing here.

    Raises:
        ValueError: a field of it is not a whole number.
    """
    words = name.replace(",", " ").split()
    if not words:
        return None
    if match := TORCH_PIPELINE.fullmatch(words[0]):
        stage, action, micro_batch = match.groups()
        return Annotation(ALIASES[action], int(micro_batch or NONE), model_chunk=int(stage))
    if words[0].startswith(TORCH_OPTIMIZER):
        return Annotation((OPTIMIZER,))
    if words[0] not in ALIASES or words[0] in PIPELINE_ONLY:
        return None
    return Annotation(ALIASES[words[0]], **_fields(words[1:]))


def _fields(words: list[str]) -> dict[str, int]:
    """Known fields of `key=value` words; a bare number is the micro-batch, everything else is left to its writer."""
    found = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator and key.isdecimal():
            key, value = "mb", key
        if key in FIELDS:
            found[FIELDS[key]] = whole_number(value)
    return found


def step_number(name: str) -> int:
    """12 of "ProfilerStep#12".

    Raises:
        ValueError: no whole number follows.
    """
    return whole_number(name.removeprefix(STEP))


def whole_number(text: str) -> int:
    """`text` as a number from 0.

    Raises:
        ValueError: it is none, or has more digits than any count in a profile; says what is expected.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS):
        raise ValueError("a whole number from 0")
    return int(text)


def is_communication(kernel: str) -> bool:
    """Whether a kernel of a GPU belongs to NCCL (or RCCL, which keeps the names), or an operation of XLA is a collective."""
    return _COLLECTIVE.match(kernel) is not None


@lru_cache(maxsize=1024)
def communication_kind(name: str) -> str:
    """Kind of communication that a kernel, a c10d op or PyTorch's "Collective name" names; "" for none that is known."""
    letters = _NOT_LETTERS.sub("", name.lower())
    return next((kind for part, kind in KINDS if part in letters), "")


COPY, OTHER = "copy", "other"
_CLASSES = (  # the first that is part of the name, in lower case
    (COPY, r"memcpy|memset|copybuffer|fillbuffer"),
    ("attention", r"flash|fmha|attention|attn|sdpa"),
    ("convolution", r"conv(?!ert)|im\w{0,2}2col|winograd|scudnn|fprop|dgrad|wgrad"),
    ("gemm", r"(?<!fb)gemm|gemv|^cijk_|nvjet|xmma|cublas|matmul|(^|_)dot(\.|_|$)|cutlass"),
    (
        "memory",
        r"elementwise|reduce|norm|softmax|fusion|transpose|copy|slice|concat|gather|scatter|embedding|multi_tensor|adam|fill|"
        r"broadcast|convert|nhwc|nchw|bn_|dropout|pool|sort|index|indices|permute|scan|moments|gammabeta|quantize|scale|^triton_|wrapped_|cast|select|iota",
    ),
)
CLASSES = (*(name for name, _ in _CLASSES), OTHER)
_PATTERNS = tuple((name, re.compile(pattern)) for name, pattern in _CLASSES)


@lru_cache(maxsize=65_536)
def kernel_class(name: str) -> str:
    """Class of the kernel `name`: gemm, attention, convolution, memory (limited by it), copy, or other where no word tells.

    A name of a class is of that class.
    """
    if name in CLASSES:
        return name
    lower = name.lower().replace("(anonymous namespace)::", "").partition("(")[0]  # types of arguments tell nothing
    return next((found for found, pattern in _PATTERNS if pattern.search(lower)), OTHER)
