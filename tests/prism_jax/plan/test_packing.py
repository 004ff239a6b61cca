"""Lengths of documents: FLOPs, seconds and MFU follow the sum of their squares; what is refused; and work of micro-batches.

The laws of micro-batches are held against brute force over documents, and against closed forms.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from prism_jax.core.errors import ConfigError, PlanError
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.job.read_tables import lengths_of
from prism_jax.job.rules import check_plan, workload_notes
from prism_jax.job.write_job import whole_fields
from prism_jax.plan.packing import Data, Lengths, MicroBatchLaw, binned, law_of, parse_lengths
from prism_jax.plan.plan import ParallelPlan
from prism_jax.simulate.inputs import deterministic
from prism_jax.simulate.program import lower
from prism_jax.system.catalog import cluster
from prism_jax.variability.config import preset
from prism_jax.workload.catalog import model
from prism_jax.workload.transformer.spec import TransformerSpec

LLAMA = model("llama-3-8b")
PLAN = ParallelPlan(1, 64, 8192, dp=8, zero_stage=1)
DOCUMENTS = (512, 512, 1024, 2048, 4096)


def packed(plan: ParallelPlan, *lengths: int) -> ParallelPlan:
    return replace(plan, data=Data(parse_lengths(list(lengths))))


def test_attention_counts_the_squares_of_the_lengths() -> None:
    """By hand: 3 x 4 h FLOPs per layer and pair of tokens that see each other, l (l + 1) / 2 pairs in a document."""
    assert isinstance(LLAMA, TransformerSpec)
    whole, own = (LLAMA.step_flops(plan, recomputed=False) for plan in (PLAN, packed(PLAN, *DOCUMENTS)))
    pairs = {name: sum(n * (n + 1) / 2 for n in lengths) for name, lengths in (("one", [8192]), ("many", DOCUMENTS))}
    per_pair = 3 * 4 * LLAMA.n_layers * LLAMA.hidden
    assert whole - own == pytest.approx(64 * per_pair * (pairs["one"] - pairs["many"]))


@pytest.mark.parametrize("recompute", ["none", "full", "selective_op"])
def test_one_document_per_sequence_changes_nothing(recompute: str) -> None:
    plan = replace(PLAN, recompute=recompute)
    for recomputed in (False, True):
        found = LLAMA.step_flops(packed(plan, 8192), recomputed=recomputed)
        assert found == pytest.approx(LLAMA.step_flops(plan, recomputed=recomputed), rel=1e-12)


def test_a_step_is_faster_the_shorter_the_documents() -> None:
    def seconds(*lengths: int) -> float:
        plan = packed(PLAN, *lengths) if lengths else PLAN
        return deterministic(
            lower(Job(LLAMA, cluster("dgx-h100", 8), plan, preset("none"), framework="megatron-core"), True)
        )

    assert seconds() == pytest.approx(seconds(8192))
    assert seconds(8192) > seconds(4096) > seconds(2048) > seconds(512)
    assert seconds(*DOCUMENTS) == pytest.approx(seconds(*DOCUMENTS, *DOCUMENTS))  # a sample, in any number


def test_a_window_sees_no_more_than_its_document() -> None:
    gemma = model("gemma-3-27b")  # windows of 1,024 tokens
    plain = replace(gemma, window=None)
    short, long = (packed(PLAN, length) for length in (256, 4096))
    assert gemma.step_flops(short, recomputed=False) == pytest.approx(plain.step_flops(short, recomputed=False))
    assert gemma.step_flops(long, recomputed=False) < plain.step_flops(long, recomputed=False)


def test_a_list_and_counts_say_the_same() -> None:
    assert parse_lengths([512, 4096, 512]) == parse_lengths({"512": 2, "4096": 1}) == Lengths(((512, 2), (4096, 1)))
    assert parse_lengths(parse_lengths([3]).written) == parse_lengths([3]) == parse_lengths(3)


@pytest.mark.parametrize(
    "wrong", [[], {}, [0], [-5], ["a"], [1.5], {"x": 2}, {512: 0}, 0, -7, True, "512", [True], [1] * 20_001]
)
def test_what_is_no_length_is_refused(wrong: object) -> None:
    with pytest.raises(PlanError):
        parse_lengths(wrong)


JOB = """
model: {model}
cluster: {{preset: dgx-h100, n_devices: 8}}
plan: {{dp: 8, micro_batch: 1, global_batch: 8, seq_len: 8192}}
data: {{lengths: {lengths}}}
"""


def test_a_job_file_states_them(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB.format(model="llama-3-8b", lengths="[512, 4096, 512]"))
    job = load_job(file)
    assert job.plan.data.lengths.n_documents == 3
    assert any("documents per sequence" in note for note in workload_notes(job.model, job.plan))
    assert load_job(file, ["data.lengths={8192: 4}"]).plan.data.lengths.longest == 8192
    for model_name, lengths, says in (
        ("llama-3-8b", "[9000]", "longer than plan.seq_len"),
        ("llama-3-8b", "[a]", "tokens of every document"),
        ("bert-large", "[512]", "reads no packed sequences"),
    ):
        file.write_text(JOB.format(model=model_name, lengths=lengths))
        with pytest.raises(ConfigError, match=says):
            load_job(file)


def test_a_plan_with_longer_documents_than_sequences_is_refused() -> None:
    with pytest.raises(PlanError, match="longer than"):
        check_plan(packed(PLAN, 9000), LLAMA, cluster("dgx-h100", 8))


# --- Work of micro-batches -------------------------------------------------------------------------------------------


S, B, BUCKET = 2048, 3, 6
FAMILIES = {
    "log_normal": {"kind": "log_normal", "cv": 1.2, "mean": 500},
    "gamma": {"kind": "gamma", "cv": 0.7, "mean": 700},
    "student_t": {"kind": "student_t", "scale_cv": 0.5, "df": 2.5, "mean": 400},
    "mixture": {"kind": "mixture", "bulk_cv": 0.4, "slow_prob": 0.1, "slow_factor": 9.0, "slow_cv": 0.5, "mean": 450},
    "histogram": {100: 5, 900: 3, 2500: 1, 7000: 0.2},
}
N = 6000  # micro-batches by hand
MOST_ERRORS = 4.5  # 50 comparisons of a mean and of a spread: one false alarm in 1,500 runs


def named(name: str) -> Lengths:
    written = FAMILIES[name]
    if name == "histogram":
        written = {length: round(10 * count) for length, count in written.items()}
    return parse_lengths(lengths_of(written))


def plan_of(lengths: Lengths, packing: str) -> ParallelPlan:
    return ParallelPlan(B, B * 4 * 2, S, dp=2, data=Data(lengths, packing, bucket=BUCKET))


def documents(lengths: Lengths, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    tokens, count = np.array(lengths.counts).T
    return rng.choice(tokens, size=shape, p=count / count.sum())


def in_row(lengths: Lengths, n_sequence: int, rng: np.random.Generator) -> list[list[int]]:
    """Pieces of documents in sequences, document by document, after those of the first sequence."""
    row = documents(lengths, (2 * (n_sequence + 2) * S * lengths.n_documents // lengths.n_tokens,), rng)
    ends = np.cumsum(row)
    cuts = np.union1d(ends[ends <= (n_sequence + 1) * S], np.arange(1, n_sequence + 2) * S)
    pieces: list[list[int]] = [[] for _ in range(n_sequence + 1)]
    for end, piece in zip(cuts.tolist(), np.diff(cuts, prepend=0).tolist(), strict=True):
        pieces[(end - 1) // S].append(piece)
    return pieces[1:]


def by_hand(lengths: Lengths, packing: str, rng: np.random.Generator) -> np.ndarray:
    """Computed tokens and sums of squares of micro-batches [2, micro-batch]."""
    if packing in ("padded", "bucketed"):
        n = BUCKET if packing == "bucketed" else 1
        pools = np.sort(np.minimum(documents(lengths, (N // n, B * n), rng), S))
        longest = pools[:, B - 1 :: B].ravel()
        return np.array([B * longest, B * longest**2], dtype=float)
    squares = [S**2 if packing == "packed" else sum(n**2 for n in row) for row in in_row(lengths, N * B, rng)]
    sums = dealt(squares) if packing == "balanced" else np.reshape(squares, (N, B)).sum(1)
    return np.array([np.full(N, B * S), sums], dtype=float)


def dealt(squares: list[int], n_replica: int = 2, n_micro_batch: int = 4) -> list[int]:
    """Micro-batches of steps, sequence by sequence: back and forth over replicas, then over micro-batches."""
    per_step, found = n_replica * n_micro_batch * B, []
    for first in range(0, len(squares), per_step):
        for own in hands(sorted(squares[first : first + per_step], reverse=True), n_replica):
            found += [sum(hand) for hand in hands(own, n_micro_batch)]
    return found


def hands(cards: list[int], n: int) -> list[list[int]]:
    held: list[list[int]] = [[] for _ in range(n)]
    for place, card in enumerate(cards):
        turn, at = divmod(place, n)
        held[n - 1 - at if turn % 2 else at].append(card)
    return held


def means(law: MicroBatchLaw) -> tuple[float, float]:
    seen = law.lengths.mean_over_tokens(lambda length: length) if law.lengths else float(law.seq_len)
    return float(B * law.seq_len), B * law.seq_len * seen


@pytest.mark.parametrize("packing", ["padded", "bucketed", "packed", "masked", "balanced"])
@pytest.mark.parametrize("name", FAMILIES)
def test_tokens_and_squares_are_those_of_documents_by_hand(name: str, packing: str) -> None:
    lengths = named(name)
    law = law_of(plan_of(lengths, packing))
    found = by_hand(lengths, packing, np.random.default_rng(7))
    for own, mean, excess in zip(found, means(law), (law.tokens, law.squares), strict=True):
        error = own.std(ddof=1) / np.sqrt(len(own))
        rounded = 0.5 * B * (1.0 if mean < B * S + 1 else S) + 2e-3 * mean  # whole tokens, few unlike lengths
        assert abs(own.mean() - mean) <= MOST_ERRORS * error + rounded
        if not excess.size:
            assert own.std() == 0.0
            continue
        deviation = (own / own.mean() - 1.0) ** 2
        error = deviation.std(ddof=1) / np.sqrt(len(own)) + 1e-12
        assert abs(deviation.mean() - (excess**2).mean()) <= MOST_ERRORS * error + 0.01 * deviation.mean()
        p = (0.1, 0.5, 0.9, 0.99)
        at = mean * (1.0 + np.quantile(excess, p))
        near = MOST_ERRORS * np.sqrt(0.25 / len(own))
        assert all((own < 0.997 * edge).mean() <= q + near for q, edge in zip(p, at, strict=True))
        assert all((own <= 1.003 * edge).mean() >= q - near for q, edge in zip(p, at, strict=True))


@pytest.mark.parametrize("name", FAMILIES)
def test_pairs_of_a_cut_row_have_a_closed_form(name: str) -> None:
    """A token sees one d further on in its document and sequence with probability (S - d) / S x E[(L - d)+] / E[L]."""
    lengths = named(name)
    tokens, count = np.array(lengths.counts, dtype=float).T
    share, distance = count / count.sum(), np.arange(1, S)[:, None]
    both = (np.maximum(tokens - distance, 0.0) @ share) / (tokens @ share)
    squares = S + 2.0 * ((S - distance[:, 0]) * both).sum()
    law = law_of(plan_of(lengths, "masked"))
    assert law.lengths.mean_over_tokens(lambda length: length) * S == pytest.approx(squares, rel=2e-3)


def test_a_micro_batch_of_one_document_is_that_document() -> None:
    plan = replace(plan_of(named("gamma"), "padded"), micro_batch=1)
    law = law_of(plan)
    assert law.seq_len == round(law.real_tokens)
    assert law.squares == pytest.approx((law.tokens + 1.0) ** 2 / ((law.tokens + 1.0) ** 2).mean() - 1.0)


def test_real_tokens_of_a_step_leave_padding_out() -> None:
    plan = plan_of(parse_lengths({512: 1, 1536: 1}), "padded")
    assert plan.tokens_per_sequence == 1024
    assert plan.computed.seq_len == round(1536 - 1024 * 0.5**B)
    assert plan_of(parse_lengths({512: 1, 1536: 1}), "masked").tokens_per_sequence == S


def test_few_lengths_keep_sums_of_tokens_and_squares() -> None:
    tokens, weight = np.arange(1, 5000), 1.0 / np.arange(1, 5000)
    few = binned(tokens, weight)
    assert len(few.counts) <= 256
    assert few.mean_over_tokens(lambda length: length) == pytest.approx(
        (weight @ tokens**2.0) / (weight @ tokens), rel=1e-3
    )


def test_a_family_has_the_mean_that_is_written_and_is_written_again() -> None:
    lengths = named("log_normal")
    assert lengths.n_tokens / lengths.n_documents == pytest.approx(500, rel=0.01)
    assert lengths_of(lengths.written) == lengths


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ({"kind": "log_normal", "cv": 1.2}, "need its mean"),
        ({"kind": "log_normall", "cv": 1.2, "mean": 9}, "did you mean"),
        ("missing.csv:n", "missing.csv"),
    ],
)
def test_wrong_lengths_say_what_is_meant(written: object, text: str) -> None:
    with pytest.raises(PlanError, match=text):
        lengths_of(written)


def test_a_column_of_a_table_is_read(tmp_path) -> None:
    file = tmp_path / "corpus.csv"
    file.write_text("id,n_tokens\n1,300\n2,400\n3,300\n")
    assert lengths_of(f"{file}:n_tokens").counts == ((300, 2), (400, 1))
    with pytest.raises(PlanError, match="has columns id, n_tokens"):
        lengths_of(f"{file}:tokens")
    file.write_text("n_tokens\n300\nmany\n")
    with pytest.raises(PlanError, match="line 3"):
        lengths_of(str(file))


def test_lengths_of_a_job_file_are_written_as_they_were_read(tmp_path: Path) -> None:
    """A family by its fields; a table, which another job would not find, by its counts."""
    (tmp_path / "corpus.csv").write_text("n_tokens\n300\n400\n300\n")
    for written in ({"kind": "gamma", "cv": 0.5, "mean": 300}, "corpus.csv:n_tokens"):
        sections = {
            "model": "llama-3-8b",
            "cluster": {"preset": "dgx-h100", "n_devices": 8},
            "plan": {"micro_batch": 1, "global_batch": 8, "seq_len": 2048, "dp": 8},
            "data": {"lengths": written, "packing": "bucketed", "bucket": 7},
        }
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(sections))
        data = load_job(tmp_path / "job.yaml").plan.data
        again = whole_fields(data)
        assert again["lengths"] == (written if isinstance(written, dict) else {300: 2, 400: 1})
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(sections | {"data": again}))
        assert load_job(tmp_path / "job.yaml").plan.data == data
