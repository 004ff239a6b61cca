"""Bytes and seconds of the loss, by how it is computed, against counts by hand and published measurements."""

from dataclasses import replace

import pytest

from prism_jax.calibration.open_fields import usual_software
from prism_jax.cost.compute import op_seconds
from prism_jax.cost.efficiency import efficiency
from prism_jax.cost.memory import memory, memory_notes
from prism_jax.framework.frameworks import FSDP, MEGATRON_CORE
from prism_jax.framework.software import CROSS_ENTROPY, Software
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.catalog import cluster, device
from prism_jax.workload import catalog
from prism_jax.workload.base.kernels import KernelTable
from prism_jax.workload.base.workload import total_bytes
from prism_jax.workload.transformer.loss import chunk_count, loss_kernels, loss_peak_bytes, loss_saved_tensors
from prism_jax.workload.transformer.shard import Shard

GEMMA = 8192.0, 256000.0, 2304.0  # tokens, vocabulary, hidden size of arXiv 2411.09009 table 1, measured on an A100
MIB = 2.0**20


def shard(kind: str, n_chunk: int = 0) -> Shard:
    software = Software(cross_entropy=kind, cross_entropy_chunks=n_chunk)
    return Shard.of(catalog.model("llama-2-7b"), ParallelPlan(8, 8, seq_len=1024, software=software))


def held_bytes(kind: str, n_chunk: int = 0, sizes: tuple[float, float, float] = GEMMA) -> float:
    """Saved and momentary bytes, without the input of the product."""
    tokens = sizes[0]
    own = shard(kind, n_chunk)
    saved = [one for one in loss_saved_tensors(*sizes, tokens, own) if one.name != "head input"]
    return total_bytes(saved) + loss_peak_bytes(*sizes, own, FSDP.memory)


def test_every_kind_of_loss_holds_its_own_bytes() -> None:
    """In 16 bits a logit: 12 bytes at the peak of PyTorch's operations, 6 compiled, 2 in place."""
    logits = GEMMA[0] * GEMMA[1]
    assert held_bytes("eager") == 12 * logits
    assert held_bytes("compiled") == 6 * logits
    assert held_bytes("fused") == 2 * logits
    assert held_bytes("cut") == 4 * GEMMA[0]
    assert len({held_bytes(kind) for kind in CROSS_ENTROPY}) == len(CROSS_ENTROPY)


def test_a_linear_loss_holds_what_liger_was_measured_to() -> None:
    """arXiv 2411.09009 table 1: 1,474 MB, of which 1,161 MB are the gradients of input and matrix."""
    assert held_bytes("linear") / MIB == pytest.approx(1474, rel=0.02)
    assert chunk_count(shard("linear").software, *GEMMA) == 64  # of 128 tokens


def test_eight_chunks_save_seven_gib_of_a_loss_in_separate_operations() -> None:
    """torchtitan PR 996: Llama-3-8B, 8,192 tokens."""
    sizes = 8192.0, 128256.0, 4096.0
    assert (held_bytes("eager", sizes=sizes) - held_bytes("eager", 8, sizes)) / 2**30 == pytest.approx(7.0, rel=0.05)


@pytest.mark.parametrize(("kind", "ms"), [("compiled", 142), ("linear", 304), ("cut", 145)])
def test_seconds_of_a_loss_are_those_that_were_measured(kind: str, ms: float) -> None:
    """arXiv 2411.09009 table 1, forward and backward on an A100."""
    table = KernelTable.of(loss_kernels(*GEMMA, shard(kind)))
    constants = replace(efficiency("ampere"), in_step=1.0)
    assert 1e3 * op_seconds(table, device("a100-80gb"), "bf16", constants).sum() == pytest.approx(ms, rel=0.15)


@pytest.mark.parametrize("kind", CROSS_ENTROPY)
@pytest.mark.parametrize("n_chunk", [0, 4])
def test_flops_of_the_loss_do_not_depend_on_chunks(kind: str, n_chunk: int) -> None:
    """Three products; a fourth where logits are computed again."""
    flops = KernelTable.of(loss_kernels(*GEMMA, shard(kind, n_chunk))).flops()
    assert flops == pytest.approx((8 if kind == "cut" else 6) * GEMMA[0] * GEMMA[1] * GEMMA[2])


def test_more_chunks_of_a_linear_loss_never_hold_more() -> None:
    held = [held_bytes("linear", n) for n in (1, 2, 4, 8, 64, 8192)]
    assert held == sorted(held, reverse=True)


def test_a_long_context_fits_with_a_linear_loss_alone() -> None:
    """Liger-Kernel's README: Llama-3-8B, batches of 8 on 8 A100 of 80 GB, FSDP, full recomputation, up to 16k tokens."""
    model = replace(catalog.model("llama-3-8b"), max_seq_len=16384)
    where = cluster("dgx-a100", 8)
    for kind in CROSS_ENTROPY:
        software = usual_software(Software(cross_entropy=kind), FSDP, "ampere")
        plan = ParallelPlan(8, 64, seq_len=16384, dp=8, sharding="fsdp", recompute="full", software=software)
        found = memory(model, where, plan, FSDP.memory)
        assert found.fits == (kind == "linear")
        notes = list(memory_notes(model, where, plan, FSDP.memory))
        assert any("than linear" in note for note in notes) == (kind not in ("linear", "cut"))


def test_logits_of_megatron_are_kept_as_its_papers_say() -> None:
    """arXiv 2205.05198 section 4.3: fp32 logits; their 16-bit original beside them while the loss is computed."""
    sizes = 8192.0, 128256.0, 4096.0
    software = usual_software(Software(), MEGATRON_CORE, "hopper")
    own = Shard.of(catalog.model("llama-3-8b"), ParallelPlan(1, 1, seq_len=8192, software=software))
    assert loss_peak_bytes(*sizes, own, MEGATRON_CORE.memory) == 2 * sizes[0] * sizes[1]
