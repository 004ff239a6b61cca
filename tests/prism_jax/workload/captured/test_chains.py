"""Chains of repeated layers in captured programs, and fusion of their kernels."""

from collections.abc import Hashable, Sequence
from dataclasses import replace

import pytest

from prism_jax.workload.captured.chains import Access, ChainStep, links
from prism_jax.workload.captured.fusion import NEIGHBOURS, fused, merged
from prism_jax.workload.captured.program import FUSIONS, CapturedComm, CapturedOp, Repeat
from tests.support.captured.programs import class_of, names_of, pointwise, product, reduction

SIZE = 64.0  # bytes of a tensor


def of(*makers: int, storage: Hashable = "", n_bytes: float = SIZE, start: int = 0) -> Access:
    """What is read of the result of an operation; of none: a tensor from outside."""
    return Access(frozenset(makers), storage or makers, start, start + int(n_bytes), n_bytes)


def outside(name: str, n_bytes: float = SIZE) -> Access:
    return of(storage=name, n_bytes=n_bytes)


def step(role: str, *reads: Access, phase: str = "F", written: float = SIZE) -> ChainStep:
    return ChainStep(role, phase, reads, written)


def with_readers(steps: Sequence[ChainStep], readers: Sequence[Sequence[int]]) -> list[ChainStep]:
    return [replace(one, readers=tuple(own)) for one, own in zip(steps, readers, strict=True)]


def program(*steps: ChainStep) -> list[ChainStep]:
    """The steps, with who reads what they make."""
    readers: list[list[int]] = [[] for _ in steps]
    for number, one in enumerate(steps):
        for maker in {maker for access in one.reads for maker in access.makers}:
            readers[maker].append(number)
    return with_readers(steps, readers)


def ends(*steps: ChainStep) -> list[int]:
    return [link.end for link in links(program(*steps))]


def moved(*steps: ChainStep) -> float:
    """Bytes of all kernels."""
    steps = tuple(program(*steps))
    alone = [sum(one.n_bytes for one in each.reads) + each.written_bytes for each in steps]
    made = links(steps)
    return sum(alone[at] if link.n_bytes is None else link.n_bytes for at, link in enumerate(made) if link.end == at)


ADD = step("pointwise", outside("a"), outside("b"))


def test_what_one_operation_alone_reads_stays_in_registers():
    steps = (ADD, step("pointwise", of(0), outside("c")), step("kernel", of(1)))
    assert ends(*steps) == [1, 1, 2]
    assert moved(*steps) == (3 + 1) * SIZE + 2 * SIZE  # a, b, c read and their sum written; the product by itself


def test_what_two_kernels_read_is_written():
    steps = (
        ADD,
        step("reduction", of(0)),
        step("kernel", of(1)),
        step("pointwise", of(0), of(2)),
        step("kernel", of(3)),
    )
    assert ends(*steps) == [0, 1, 2, 3, 4]
    assert [link.n_bytes for link in links(program(*steps))] == [None] * 5


def test_what_the_backward_pass_reads_is_written_by_the_chain():
    forward = (ADD, step("pointwise", of(0), outside("c")), step("kernel", of(1)))
    steps = (*forward, step("kernel", of(0), phase="B"))
    assert ends(*steps) == [1, 1, 2, 3]
    assert moved(*steps) - moved(*forward) == 2 * SIZE + SIZE


def test_of_what_a_chain_makes_only_what_the_backward_pass_reads_is_written():
    """A mask of dropout, a byte for two of an element."""
    dropout = step("once", outside("x"), written=1.5 * SIZE)
    forward = (dropout, step("pointwise", of(0, storage="y"), outside("r")), step("kernel", of(1)))
    backward = step("once", outside("d"), of(0, storage="mask", n_bytes=SIZE / 2), phase="B")
    assert links(program(*forward, backward))[1].n_bytes == 3.5 * SIZE


def test_a_gated_activation_reads_three_tensors_forward_and_five_backward_move():
    """Of a gate g and a value v: silu(g) v; its gradients of both, from d, side by side."""
    gate, value, grad = outside("g"), outside("v"), outside("d")
    forward = (step("pointwise", gate), step("pointwise", of(0), value), step("kernel", of(1)))
    backward = (
        step("pointwise", grad, value, phase="B"),  # of silu(g)
        step("pointwise", grad, of(0), phase="B"),  # of v
        step("pointwise", of(3), gate, phase="B"),
        step("copy", of(5), of(4), phase="B", written=2 * SIZE),
        step("kernel", of(6, n_bytes=2 * SIZE), phase="B"),
    )
    made = links(program(*forward, *backward))
    assert (made[1].n_bytes, made[6].n_bytes) == (3 * SIZE, 5 * SIZE)
    assert [link.end for link in made] == [1, 1, 2, 6, 6, 6, 6, 7]


def test_a_cast_that_several_read_is_made_again_by_each():
    narrow = outside("x", SIZE / 2)
    steps = (step("pointwise", narrow), step("reduction", of(0), written=1), step("pointwise", of(0), of(1, n_bytes=1)),
             step("kernel", of(2)), step("kernel", of(1, n_bytes=1)))  # fmt: skip
    made = links(program(*steps))
    assert made[0] == (0, 0.0)
    assert made[1].n_bytes == SIZE / 2 + 1
    assert made[2].n_bytes == SIZE / 2 + 1 + SIZE


def test_a_value_of_two_tensors_is_not_made_again():
    steps = (ADD, step("reduction", of(0)), step("reduction", of(0)), step("kernel", of(1)), step("kernel", of(2)))
    assert links(program(*steps))[0] == (0, None)


def test_a_copy_of_what_one_kernel_wrote_for_it_is_not_made():
    steps = (step("kernel", outside("a")), step("copy", of(0)), step("kernel", of(1)))
    assert links(program(*steps))[1].n_bytes == 0.0
    read_twice = (*steps, step("kernel", of(0)))
    assert links(program(*read_twice))[1].n_bytes is None


def test_a_copy_out_of_a_collective_is_made():
    steps = (step("", outside("a")), step("copy", of(0)), step("kernel", of(1)))
    assert links(program(*steps))[1].n_bytes is None


def test_of_a_copy_only_what_is_rotated_is_read_and_written():
    """Gradients of queries and keys pass a chain each, that of values goes straight to its place."""
    steps = (
        step("kernel", outside("o"), phase="B", written=3 * SIZE),
        step("pointwise", of(0, storage="q"), outside("cos", 1), phase="B"),
        step("pointwise", of(0, storage="k"), outside("cos", 1), phase="B"),
        step("kernel", outside("p"), phase="B"),
        step("copy", of(1), of(2), of(3), phase="B", written=3 * SIZE),
        step("kernel", of(4, n_bytes=3 * SIZE), phase="B"),
    )
    made = links(program(*steps))
    assert [link.end for link in made] == [0, 4, 4, 3, 4, 5]
    assert made[4].n_bytes == 2 * SIZE + 1 + 2 * SIZE


def test_a_product_adds_its_gradient_of_weights_to_the_sum():
    steps = (step("kernel", outside("x"), outside("d"), phase="W"), step("sum", outside("sum"), of(0), phase="W"))
    assert ends(*steps) == [1, 1]
    assert moved(*steps) == 3 * SIZE + SIZE
    forward = (step("kernel", outside("x"), outside("w")), step("sum", outside("residual"), of(0)))
    assert ends(*forward) == [0, 1]


def test_the_gradient_of_a_bias_is_an_epilogue_of_the_product():
    grad = outside("d")
    steps = (step("kernel", outside("x"), grad, phase="W"), step("reduction", grad, phase="W", written=1.0))
    assert links(program(*steps))[1].n_bytes == 0.0


@pytest.mark.parametrize("role", ["copy", "sum"])
def test_by_products_are_written_or_added_by_the_kernel_that_makes_them(role: str):
    """The gradient of a norm's weights: copied into a bucket, or added to that of the micro-batch before."""
    added = [outside("bucket", 1.0)] if role == "sum" else []
    steps = (
        step("reduction", outside("d"), outside("x"), phase="B"),
        step("pointwise", of(0, storage="dx"), phase="B"),
        step(role, *added, of(0, storage="dw", n_bytes=1.0), phase="W", written=1.0),
        step("kernel", of(1), phase="B"),
        step("", of(2, n_bytes=1.0), phase="B"),
    )
    made = links(with_readers(steps, [(1,), (3,), (4,), (), ()]))
    assert [link.end for link in made] == [1, 1, 2, 3, 4]
    assert (made[1].n_bytes, made[2].n_bytes) == (3 * SIZE, 0.0)


def test_part_of_something_that_is_read_is_read_once():
    """Halves of a tensor that is read as a whole, as a rotary embedding does."""
    whole, half = outside("x"), Access(frozenset(), "x", 32, 64, SIZE / 2)
    steps = (step("pointwise", whole, outside("c")), step("pointwise", half, written=SIZE / 2),
             step("pointwise", of(0), of(1, n_bytes=SIZE / 2)), step("kernel", of(2)))  # fmt: skip
    assert links(program(*steps))[2].n_bytes == 2 * SIZE + SIZE


def test_a_norm_takes_one_tensor():
    norm = (step("reduction", of(0)), step("kernel", of(1)))
    assert ends(ADD, *norm) == [0, 1, 2]
    assert ends(step("once", outside("x")), *norm) == [1, 1, 2]
    assert ends(ADD, step("reduction", of(0), written=1.0)) == [1, 1]  # a mean is no norm


def test_a_product_makes_a_small_operand():
    bias = step("pointwise", outside("b", 1.0), written=1.0)
    assert links(program(bias, step("kernel", outside("x"), of(0, n_bytes=1.0))))[0].n_bytes == 0.0
    assert links(program(step("pointwise", outside("w")), step("kernel", outside("x"), of(0))))[0].n_bytes is None


def test_a_norm_is_cast_but_not_added_to_a_residual():
    norm = step("reduction", outside("d"), outside("x"))
    assert ends(norm, step("pointwise", of(0), written=SIZE / 2), step("kernel", of(1))) == [1, 1, 2]
    assert ends(norm, step("pointwise", of(0), outside("r")), step("kernel", of(1))) == [0, 1, 2]


def test_a_norm_of_its_parts_is_one_kernel():
    """Mean of squares, root, product with what it is the mean of."""
    x = outside("x")
    steps = (
        step("pointwise", x),
        step("reduction", of(0), written=1.0),
        step("pointwise", of(1, n_bytes=1.0), written=1.0),
        step("pointwise", x, of(2, n_bytes=1.0)),
        step("kernel", of(3)),
    )
    assert ends(*steps) == [3, 3, 3, 3, 4]
    assert links(program(*steps))[3].n_bytes == 2 * SIZE


def test_random_numbers_are_drawn_once():
    dropout = step("once", outside("x"), written=1.5 * SIZE)
    assert ends(dropout, step("pointwise", of(0), outside("r")), step("kernel", of(1))) == [1, 1, 2]
    twice = (dropout, step("pointwise", of(0), outside("r")), step("reduction", of(0)), step("kernel", of(1)))
    assert links(program(*twice))[0] == (0, None)


def test_passes_are_not_mixed():
    assert ends(step("pointwise", outside("a"), outside("b"), phase="B"), step("copy", of(0), phase="W")) == [0, 1]


@pytest.mark.parametrize("role", ["pointwise", "once", "reduction", "copy", "lookup", "scatter", "sum", "kernel", ""])
def test_no_kernel_moves_more_than_its_operations(role: str):
    steps = [step("pointwise", outside("x", SIZE / 2))]
    for number in range(6):
        own = role if number % 2 else "pointwise"
        steps.append(step(own, of(number), of(max(number - 2, 0)), phase="FB"[number > 3]))
    alone = sum(sum(one.n_bytes for one in each.reads) + each.written_bytes for each in steps)
    assert moved(*steps) <= alone


def test_both_halves_of_what_is_made_again_are_read():
    """A cast whose halves are turned: each half of its source is read."""
    half = SIZE / 2
    cast = step("pointwise", outside("x"))
    first = step("pointwise", of(0, n_bytes=half), outside("a", half), written=half)
    second = step("pointwise", of(0, n_bytes=half, start=int(half)), outside("b", half), written=half)
    steps = (cast, first, second, step("copy", of(1, n_bytes=half), of(2, n_bytes=half)), step("kernel", of(3)))
    assert ends(*steps)[:4] == [3, 3, 3, 3]
    # x, a and b read, the whole written; the product by itself
    assert moved(*steps) == SIZE + 2 * half + SIZE + 2 * SIZE


@pytest.mark.parametrize(("second", "together"), [("x", True), ("y", False)], ids=["of the same", "of another"])
def test_sums_are_one_kernel_where_they_are_over_the_same(second: str, together: bool):
    little = SIZE / 64
    sums = [step("reduction", outside(name), written=little) for name in ("x", second)]
    both = step("pointwise", of(0, n_bytes=little), of(1, n_bytes=little), written=little)
    found = ends(*sums, both, step("kernel", of(2, n_bytes=little)))
    assert found == ([2, 2, 2, 3] if together else [0, 2, 2, 3])


def test_a_kernel_begins_and_ends_in_one_loop():
    first = replace(ADD, loop=1, readers=(1,))
    made = links([first, replace(step("pointwise", of(0)), loop=2)])
    assert [link.end for link in made] == [0, 1]


def test_values_that_are_made_of_one_two_ways_again_and_again_are_looked_at_once():
    """Sixty times two ways: 2^60 sources if each were followed."""
    steps = [step("pointwise", outside("x"))]
    for _ in range(60):
        last = len(steps) - 1
        twice = [step("pointwise", of(last)), step("pointwise", of(last))]
        steps += [*twice, step("pointwise", of(last + 1), of(last + 2))]
    assert ends(*steps) == [len(steps) - 1] * len(steps)


# --- Fusion policies: which rows they merge, what that saves, and that waits and repeats follow ----------------------


def named(name: str, phase: str = "F") -> CapturedOp:
    return replace(pointwise(phase, 3e6, output_bytes=1e6), name=name)


CHAIN = (product(), named("add"), named("gelu"), named("sum"), named("mul"), product())


@pytest.mark.parametrize(
    ("policy", "known"),
    [
        ("eager", ["mm", "add", "gelu", "sum", "mul", "mm"]),
        ("fused", ["mm", "add", "gelu", "sum", "mul", "mm"]),  # no chain is named
        ("inductor", ["mm", "add+gelu+sum+mul", "mm"]),
        ("megatron", ["mm", "add+gelu", "sum", "mul", "mm"]),
        ("xla", ["mm", "add+gelu+sum", "mul", "mm"]),
    ],
)
def test_which_rows_are_merged(policy: str, known: list[str]):
    assert names_of(fused(class_of(*CHAIN), policy)) == known


def test_every_policy_is_there():
    assert {*NEIGHBOURS, "fused"} == set(FUSIONS)


def test_a_merged_chain_does_not_read_again_what_it_wrote_and_backward_does_not_write_it():
    assert merged([named("a"), named("b"), named("c")]).n_bytes == pytest.approx(9e6 - 2e6)
    assert merged([named("a", "B"), named("b", "B"), named("c", "B")]).n_bytes == pytest.approx(9e6 - 4e6)


@pytest.mark.parametrize("policy", FUSIONS)
def test_flops_stay_and_bytes_do_not_grow(policy: str):
    before, after = class_of(*CHAIN), fused(class_of(*CHAIN), policy)
    assert after.flops() == before.flops()
    assert sum(op.n_bytes for op, _ in after.ops) <= sum(op.n_bytes for op, _ in before.ops)


def test_passes_streams_and_counts_are_not_mixed():
    beside, twice = replace(named("c", "B"), stream=1), replace(named("d", "B"), stream=1, count=2)
    rows = (named("a"), named("b", "B"), beside, twice)
    assert len(fused(class_of(*rows), "inductor").rows) == 4


def test_nothing_is_merged_over_the_edge_of_a_repeat_or_a_wait():
    *first, e, f = (named(name) for name in "abcdef")
    rows = (*first, reduction(asynchronous=True, wait=6), e, f)
    after = fused(class_of(*rows, repeats=(Repeat(1, 3, 5),)), "inductor")
    assert names_of(after) == ["a", "b+c", "d", "all_reduce", "e", "f"]
    assert after.repeats == (Repeat(1, 2, 5),)
    assert [row.wait for row in after.rows if isinstance(row, CapturedComm)] == [5]


def test_measured_seconds_are_added():
    rows = (replace(named("a"), seconds=1.0), replace(named("b"), seconds=2.0))
    assert merged(rows).seconds == 3.0
    assert merged([*rows, named("c")]).seconds is None
