"""What uneven documents cost, and what each way of packing them brings: tokens of documents per second, padding left out."""

from prism_jax import explain_step

lengths = {"kind": "log_normal", "cv": 1.2, "mean": 700}  # or a list, a histogram, corpus.parquet:n_tokens
plan = {"tp": 4, "pp": 4, "dp": 4, "micro_batch": 2, "global_batch": 256, "seq_len": 4096, "sequence_parallel": True}
job = {"model": "llama-3-8b", "cluster": "dgx-h100", "plan": plan, "variability": "h100-default"}

for packing in ("padded", "bucketed", "packed", "masked", "balanced"):
    report = explain_step(job | {"data": {"lengths": lengths, "packing": packing}})
    p50_s, p95_s = report.step_time_s.p50, report.step_time_s.p95
    owner, owned_s = max(report.p95_owner_s.items(), key=lambda item: item[1])
    print(
        f"{packing:9} p50 {p50_s:.3f} s, p95 {p95_s / p50_s - 1:+.2%}, {report.tokens_per_s_per_gpu:8,.0f} tokens/s per GPU; "
        f"what stretches p95 most: {owner} ({owned_s:.3f} s)"
    )
