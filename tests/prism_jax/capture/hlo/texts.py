"""HLO texts for tests: small modules written by hand, in the forms that XLA for CPUs, GPUs and TPUs writes."""

from prism_jax.capture.hlo.parse import parse_hlo
from prism_jax.capture.hlo.types import Module

SUM = """%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}
"""


def text(body: str, before: str = "", devices: int = 8) -> str:
    """A module whose entry holds some lines."""
    return (
        f"HloModule m, is_scheduled=true, entry_computation_layout={{()->f32[]}}, num_partitions={devices}\n\n"
        f"{SUM}\n{before}\nENTRY %main (p: f32[4,8]) -> f32[4,8] {{\n{body}\n}}\n"
    )


def module(body: str, before: str = "", devices: int = 8) -> Module:
    """The same, read."""
    return parse_hlo(text(body, before, devices), "m.txt")


# A loop whose counter goes from 2 by 3 while it is below 17: 5 trips. Its body multiplies.
LOOP = """%body (t: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %t = (s32[], f32[4,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = f32[4,8]{1,0} get-tuple-element(%t), index=1
  %three = s32[] constant(3)
  %next = s32[] add(%i, %three)
  %w = f32[8,8]{1,0} constant({...})
  %y = f32[4,8]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %r = (s32[], f32[4,8]{1,0}) tuple(%next, %y)
}

%condition (t: (s32[], f32[4,8])) -> pred[] {
  %t = (s32[], f32[4,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %end = s32[] constant(17)
  ROOT %less = pred[] compare(%i, %end), direction=LT
}
"""
ENTRY_OF_LOOP = """  %p = f32[4,8]{1,0} parameter(0)
  %begin = s32[] constant(2)
  %both = (s32[], f32[4,8]{1,0}) tuple(%begin, %p)
  %loop = (s32[], f32[4,8]{1,0}) while(%both), condition=%condition, body=%body
  ROOT %out = f32[4,8]{1,0} get-tuple-element(%loop), index=1"""

# What XLA for GPUs writes: a product in a library, an asynchronous sum, work beside it, and its end.
_DIMS = '"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[]'
_CONFIG = '{"gemm_backend_config":{"dot_dimension_numbers":{' + _DIMS + "}}}"
GPU = f"""  %p = f32[4,8]{{1,0}} parameter(0)
  %w = f32[8,8]{{1,0}} constant({{...}})
  %start = f32[4,8]{{1,0}} all-reduce-start(%p), channel_id=1, replica_groups={{{{0,1,2,3}},{{4,5,6,7}}}}, to_apply=%sum
  %call = (f32[4,8], s8[64]) custom-call(%p, /*index=1*/%w), custom_call_target="__cublas$gemm", backend_config={_CONFIG}
  %product = f32[4,8]{{1,0}} get-tuple-element(%call), index=0
  %done = f32[4,8]{{1,0}} all-reduce-done(%start)
  ROOT %out = f32[4,8]{{1,0}} add(%done, %product)"""
