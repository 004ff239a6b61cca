"""Networks of which only totals were published: operations, parameters and tensors; they become equal 3x3 convolutions.

Of n tensors a third are convolutions, the others scale and shift of their norms. All have one width and one number of pixels,
which follow from parameters and operations; every second one ends a residual block. So products, passes over memory and what is
exchanged have the right totals (parameters to 7 %, operations to 14 %: widths and edges are whole numbers), and nothing is said
of how they are spread over the depth.

Source: CM-DARE (cake-lab/CM-DARE, `step_time_k80`): 20 residual and shake-shake networks on images of 32 x 32, with FLOPs of both
passes, parameters and tensors. That FLOPs are of both passes follows from the steps: thrice as many would exceed the peak of K80.
"""

from __future__ import annotations

from functools import partial
from math import sqrt

from ..layers import Network
from ..tape import Tape
from .base import Architecture

_PASSES = 3.0  # forward, and two products backward


def _of_totals(train_flops: float, n_params: int, n_tensors: int, image_size: int, n_classes: int) -> Network:
    n = max(2, n_tensors // 3)
    width = max(1, round(sqrt(n_params / (9.0 * n))))
    pixels = train_flops / _PASSES / (2.0 * 9.0 * width * width * n)
    edge = max(1, round(sqrt(pixels) * image_size / 32.0))
    tape = Tape(edge, channels=width)
    with tape.block("stem", "first"):
        x = tape.conv_norm_act(tape.image, width)
    for number in range((n - 1) // 2):
        with tape.block(f"residual.{number}"):
            y = tape.conv_norm_act(tape.conv_norm_act(x, width), width, act="")
            x = tape.act(tape.add(y, x))
    with tape.block("classifier", "last"):
        tape.loss(tape.linear(tape.flat(tape.pool_to(x)), n_classes))
    return tape.network


# Name: FLOPs of a sample in both passes, parameters, tensors.
CM_DARE_TOTALS = {
    "res15": (630_989_589, 693_818, 50), "res32": (1_658_696_889, 1_857_722, 104), "custom1": (860_117_021, 1_063_226, 62),
    "custom2": (1_087_710_757, 1_211_194, 74), "custom3": (1_542_543_029, 1_451_706, 98),
    "custom4": (2_343_835_089, 2_633_658, 140), "custom5": (2_915_531_621, 3_391_034, 170),
    "custom6": (3_943_594_121, 4_610_362, 224), "custom7": (4_970_946_221, 5_718_842, 278),
    "custom8": (5_882_144_461, 6_421_306, 326), "custom9": (2_001_265_989, 2_245_690, 122),
    "custom10": (4_284_629_525, 4_776_890, 242), "shake16": (663_908_170, 737_418, 210),
    "shake48": (5_768_251_646, 6_568_282, 216),
    "shake80": (15_906_945_758, 18_206_970, 216), "shake-small": (2_587_431_950, 2_926_986, 216),
    "shake-mid": (10_208_089_582, 11_661_610, 216), "shake-big": (22_864_820_174, 26_204_362, 216),
    "shake-small-32d": (3_273_945_570, 3_703_818, 264), "shake-mid-32d": (12_950_909_250, 14_763_562, 264),
}  # fmt: skip
CM_DARE = tuple(
    Architecture(f"cm-dare-{name}", partial(_of_totals, *totals), 32, 10, "cake-lab/CM-DARE: totals alone")
    for name, totals in CM_DARE_TOTALS.items()
)
