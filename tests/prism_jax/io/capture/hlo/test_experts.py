"""Layers with experts: loops that choose by `top_k`, and the backward passes of these."""

from prism_jax.capture.hlo.collectives import Routing

F_DENSE, F_MOE, B_MOE, B_DENSE = 1, 2, 3, 4


def routing(top_k: int = F_MOE) -> Routing:
    """A model of dense layers, then layers with experts, and their backward passes."""
    one = Routing()
    for loop, phase in ((F_DENSE, "F"), (F_MOE, "F"), (B_MOE, "B"), (B_DENSE, "B")):
        one.note(loop, "jit(step)/while/body/add", phase)
    one.note(top_k, "jit(step)/jvp()/while/body/top_k", "F")
    one.products = {
        F_DENSE: {"qkv", "mlp"},
        B_DENSE: {"qkv", "mlp"},
        F_MOE: {"qkv", "experts"},
        B_MOE: {"qkv", "experts"},
    }
    return one


def test_what_has_the_products_of_a_loop_that_chooses_is_its_backward_pass():
    assert routing().expert_loops() == {F_MOE, B_MOE}


def test_what_chooses_outside_of_loops_is_no_layer():
    assert routing(top_k=0).expert_loops() == set()
