"""The study of kernel pools on a small setting."""

from experiments.kernel_pools.run import HERE, few_steps, halves, ranked


def test_the_noisy_kernel_comes_first_and_shares_sum_to_the_run():
    figures, costs = ranked({"n_job": 2, "n_step": 20})
    assert figures["made"]["first"] == figures["made"]["jobs"] == len(costs) == 2
    assert figures["made"]["share_error"] < 1e-9
    assert all(first > second for first, second in costs)


def test_kernels_drawn_anew_predict_no_worse_from_few_steps():
    settings = {"n_step": 120, "n_layer": 1, "noisy_share": 0.3, "noisy_cv": 0.3}
    found = few_steps({"n_job": 3, "n_fit": 16, "n_draw": 2000, **settings})
    without, with_ = (found[f"few steps, {name} kernels"] for name in ("without", "with"))
    assert with_["p95_error"] < without["p95_error"] + 0.01
    assert with_["ks"] < without["ks"] + 0.02


def test_kernels_make_no_difference_to_a_recorded_job_with_micro_batches():
    found = halves(HERE / "recording", {"n_split": 4, "n_draw": 2000})
    without, with_ = (found[f"recording, {name} kernels"] for name in ("without", "with"))
    assert abs(with_["p95_error"] - without["p95_error"]) < 0.02
    assert abs(with_["ks"] - without["ks"]) < 0.05
