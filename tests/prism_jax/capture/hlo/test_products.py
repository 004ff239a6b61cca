"""Sizes and FLOPs of products and convolutions, against counting by hand."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.capture.hlo.products import Product, product_of
from tests.prism_jax.capture.hlo.texts import module


def product(rows: str) -> Product:
    made = module(rows)
    entry = made.computations["main"]
    found = product_of(made, entry, entry.instructions["r"])
    assert found is not None
    return found


def test_a_batched_dot_has_the_sizes_of_its_operands():
    found = product(
        """  %p = bf16[3,5,7,2]{3,2,1,0} parameter(0)
  %q = bf16[3,11,2,7]{3,2,1,0} parameter(1)
  ROOT %r = bf16[3,5,11]{2,1,0} dot(%p, %q), """
        "lhs_batch_dims={0}, lhs_contracting_dims={2,3}, rhs_batch_dims={0}, rhs_contracting_dims={3,2}"
    )
    assert found == Product("gemm", (3, 5, 11, 14), 2.0 * 3 * 5 * 11 * 14)


def convolution(size: int, kernel: int, out: int, window: str) -> Product:
    return product(
        f"""  %p = f32[2,{size},3]{{2,1,0}} parameter(0)
  %q = f32[{kernel},3,5]{{2,1,0}} parameter(1)
  ROOT %r = f32[2,{out},5]{{2,1,0}} convolution(%p, %q), window={{size={kernel} {window}}}, dim_labels=b0f_0io->b0f"""
    )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.integers(1, 12), st.integers(1, 5), st.integers(1, 3), st.integers(0, 3), st.integers(1, 4), st.integers(1, 3)
)
def test_a_convolution_counts_the_elements_that_it_multiplies(size, kernel, stride, pad, hole, reach):
    """Against an enumeration of every pair of an output and a kernel position."""
    wide = (size - 1) * hole + 1
    out = (wide + 2 * pad - ((kernel - 1) * reach + 1)) // stride + 1
    if out < 1:
        return
    met = sum(
        0 <= at < wide and at % hole == 0
        for o, k in itertools.product(range(out), range(kernel))
        for at in (o * stride + k * reach - pad,)
    )
    window = f"stride={stride} pad={pad}_{pad} lhs_dilate={hole} rhs_dilate={reach}"
    assert convolution(size, kernel, out, window).flops == 2.0 * met * 2 * 3 * 5


def test_a_convolution_is_an_implicit_product():
    found = convolution(8, 3, 8, "pad=1_1")
    assert (found.kind, found.shape) == ("conv", (1, 16, 5, 9))


def test_a_convolution_without_a_window_is_a_product():
    """As XLA for TPUs writes products."""
    found = product(
        """  %p = bf16[4,8]{1,0} parameter(0)
  %q = bf16[8,6]{1,0} parameter(1)
  ROOT %r = bf16[4,6]{1,0} convolution(%p, %q), dim_labels=bf_io->bf"""
    )
    assert found == Product("gemm", (1, 4, 6, 8), 2.0 * 4 * 6 * 8)


@pytest.mark.parametrize(("left", "right"), [((6, 4), (4, 5)), ((2, 6, 4), (2, 4, 5))])
def test_a_call_without_dimensions_multiplies_matrices(left: tuple[int, ...], right: tuple[int, ...]):
    out = (*left[:-1], right[-1])
    shapes = [",".join(str(size) for size in dims) for dims in (left, right, out)]
    found = product(
        f"""  %p = f32[{shapes[0]}] parameter(0)
  %q = f32[{shapes[1]}] parameter(1)
  ROOT %r = f32[{shapes[2]}] custom-call(%p, %q), custom_call_target="__onednn$matmul\""""
    )
    assert found.flops == 2.0 * np.prod(out) * left[-1]


def test_rows_in_groups_are_multiplied_once():
    found = product(
        """  %p = bf16[64,8]{1,0} parameter(0)
  %q = bf16[4,8,6]{2,1,0} parameter(1)
  %n = s32[4]{0} parameter(2)
  ROOT %r = bf16[64,6]{1,0} ragged-dot(%p, %q, %n), lhs_contracting_dims={1}, rhs_contracting_dims={1}"""
    )
    assert found == Product("gemm", (1, 64, 6, 8), 2.0 * 64 * 6 * 8)
