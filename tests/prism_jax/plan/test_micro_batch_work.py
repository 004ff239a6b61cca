"""Laws of the work of micro-batches against brute force over documents, and against closed forms."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from prism_jax.core.errors import PlanError
from prism_jax.job.load_job import load_job
from prism_jax.job.read_tables import lengths_of
from prism_jax.job.write_job import whole_fields
from prism_jax.plan.packing import Data, Lengths, MicroBatchLaw, binned, law_of, parse_lengths
from prism_jax.plan.plan import ParallelPlan

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


def documents(lengths: Lengths, n: int, rng: np.random.Generator) -> list[int]:
    tokens, count = np.array(lengths.counts).T
    return rng.choice(tokens, size=n, p=count / count.sum()).tolist()


def in_row(lengths: Lengths, n_sequence: int, rng: np.random.Generator) -> list[list[int]]:
    """Pieces of documents in sequences, document by document."""
    sequences: list[list[int]] = [[]]
    left = S
    while len(sequences) <= n_sequence + 1:
        for document in documents(lengths, 1000, rng):
            while document:
                piece = min(document, left)
                sequences[-1].append(piece)
                document, left = document - piece, left - piece
                if not left:
                    sequences.append([])
                    left = S
    return sequences[1 : n_sequence + 1]


def by_hand(lengths: Lengths, packing: str, rng: np.random.Generator) -> np.ndarray:
    """Computed tokens and sums of squares of micro-batches [micro-batch, 2]."""
    if packing == "padded":
        longest = [max(min(one, S) for one in documents(lengths, B, rng)) for _ in range(N)]
    elif packing == "bucketed":
        longest = []
        for _ in range(N // BUCKET):
            pool = sorted(min(one, S) for one in documents(lengths, B * BUCKET, rng))
            longest += [max(pool[first : first + B]) for first in range(0, len(pool), B)]
    else:
        rows = in_row(lengths, N * B, rng)
        squares = [sum(piece**2 for piece in row) for row in rows]
        if packing == "packed":
            squares = [S**2 for _ in rows]
        if packing == "balanced":
            squares = dealt(squares)
        else:
            squares = [sum(squares[first : first + B]) for first in range(0, len(squares), B)]
        return np.array([[B * S] * len(squares), squares], dtype=float).T
    return np.array([[B * one, B * one**2] for one in longest], dtype=float)


def dealt(squares: list[int], n_replica: int = 2, n_micro_batch: int = 4) -> list[int]:
    """Micro-batches of steps, sequence by sequence: back and forth over replicas, then over micro-batches."""
    per_step, found = n_replica * n_micro_batch * B, []
    for first in range(0, len(squares), per_step):
        step = sorted(squares[first : first + per_step], reverse=True)
        for own in hands(step, n_replica):
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
    for own, mean, excess in zip(found.T, means(law), (law.tokens, law.squares), strict=True):
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
