"""Tells the class of a GPU kernel, or of an operation of XLA, by its name."""

from __future__ import annotations

import re
from functools import lru_cache

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
