# ruff: noqa: E501  (lines of logs are long)
"""Lines of public trainers as they print them, for logs of known step times.

Every entry writes the line(s) of one step from its number, its seconds, and the seconds since the start.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 4, 10, 0, 0, tzinfo=UTC)
TOKENS, SAMPLES, DEVICES = 4_194_304, 512, 64


@dataclass(frozen=True)
class Step:
    """A step: its number, its seconds, and the seconds since the start at its end."""

    n: int
    s: float
    elapsed_s: float

    @property
    def at(self) -> datetime:
        """When it ended."""
        return START + timedelta(seconds=self.elapsed_s)

    @property
    def hms(self) -> str:
        """Seconds since the start as tqdm writes them."""
        minutes, seconds = divmod(int(self.elapsed_s), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes:02d}:{seconds:02d}"

    @property
    def ms(self) -> float:
        """Its milliseconds."""
        return 1e3 * self.s

    @property
    def stamp(self) -> str:
        """As Python's logging writes the time."""
        return f"{self.at:%Y-%m-%d %H:%M:%S},{self.at.microsecond // 1000:03d}"

    def bar(self, total: int, after: str = "") -> str:
        """As tqdm draws it."""
        rate = f"{self.s:5.2f}s/it" if self.s >= 1 else f"{1 / self.s:5.2f}it/s"
        return f"{100 * self.n // total:3d}%|{'#' * 3:10}| {self.n}/{total} [{self.hms}<8:19:12, {rate}{after}]"


Writes = Callable[[Step], str]

REPORTED: dict[str, Writes] = {
    "Megatron-Core": lambda t: (
        f" [{t.at:%Y-%m-%d %H:%M:%S.%f}] iteration {t.n:8d}/  100000 | consumed samples: {t.n * SAMPLES:12d} | elapsed time per "
        f"iteration (ms): {t.ms:.1f} | throughput per GPU (TFLOP/s/GPU): 412.7 | learning rate: 4.5E-06 | global batch size:   512 | "
        "lm loss: 1.087654E+01 | loss scale: 1.0 | grad norm: 12.345 | number of skipped iterations:   0 |"
    ),
    "Megatron-LM 2020": lambda t: (
        f" iteration {t.n:8d}/   500000 | elapsed time per iteration (ms): {t.ms:.1f} | learning rate: 1.5E-04 | lm loss: 6.9E+00 |"
    ),
    "Megatron-DeepSpeed BLOOM": lambda t: (
        f"[default7]: iteration {t.n:8d}/  292968 | consumed samples: {t.n * SAMPLES:12d} | consumed tokens: {t.n * TOKENS:14d} | "
        f"elapsed time per iteration (s): {t.s:.2f} | learning rate: 6E-05 | global batch size:   512 | lm loss: 2.1E+00 | grad norm: "
        f"0.2 | samples per second: {SAMPLES / t.s:.3f} | TFLOPs: 150.61 |"
    ),
    "Megatron-Bridge": lambda t: (
        f"[rank0]: Step Time : {t.s:.2f}s GPU utilization: 612.3MODEL_TFLOP/s/GPU\n"
        f" [{t.at:%Y-%m-%d %H:%M:%S}] iteration {t.n:8d}/     100 | consumed samples: {t.n * SAMPLES:12d} | "
        f"elapsed time per iteration (ms): {t.ms:.1f} | learning rate: 3E-06 | global batch size:   512 |"
    ),
    "GPT-NeoX": lambda t: (
        f" samples/sec: {SAMPLES / t.s:.3f} | iteration {t.n:8d}/  320000 | elapsed time per iteration (ms): {t.ms:.1f} | "
        "learning rate: 6E-05 | approx flops per GPU: 121.3TFLOPS | lm_loss: 8.9E+00 | loss scale: 65536.0 |"
    ),
    "NeMo 1 bar": lambda t: (
        f"Epoch 0: {t.bar(5000, f', v_num=ab12, reduced_train_loss=10.90, global_step={t.n:.1f}, train_step_timing in s={t.s:.3f}')}"
    ),
    "NeMo-RL": lambda t: (
        f"\n========================= Step {t.n}/1000 =========================\n* Loss: 0.0123\n* Avg Reward: 0.5\n\n"
        f"  * Total step time: {t.s:.2f}s\n  * generation: {0.6 * t.s:.2f}s (60.0%)\n  * policy_training: {0.3 * t.s:.2f}s (30.0%)"
    ),
    "nanotron": lambda t: (
        f"{t.at:%m/%d/%Y %H:%M:%S} [INFO|DP=0|PP=0|TP=0|ip-26-0-160-192]: iteration: {t.n} / 15000 | consumed_tokens: {t.n * 4}M | "
        f"elapsed_time_per_iteration_ms: {t.s:.4g}K | tokens_per_sec: 298K | tokens_per_sec_per_gpu: 37.3K | global_batch_size: 1.02K"
    ),
    "nanoGPT": lambda t: f"iter {t.n}: loss 9.5123, time {t.ms:.2f}ms, mfu 10.32%",
    "llm.c": lambda t: (
        f"step {t.n:4d}/19560 | loss 8.90 (+nanz)| norm 15.0 (+nanz)| lr 8.57e-07 | {t.ms:.2f} ms | 55.2% bf16 MFU | 209710 tok/s"
    ),
    "build-nanogpt": lambda t: (
        f"step {t.n:5d} | loss: 8.900000 | lr 8.57e-07 | norm: 15.0 | dt: {t.ms:.2f}ms | tok/sec: {TOKENS / t.s:.2f}"
    ),
    "nanochat": lambda t: (
        f"step {t.n:05d}/21400 ({t.n / 214:.2f}%) | loss: 8.9 | lrm: 1.00 | dt: {t.ms:.2f}ms | tok/sec: {TOKENS / t.s:,.0f} | mfu: 35.10 "
        f"| total time: {t.elapsed_s / 60:.2f}m"
    ),
    "lit-gpt": lambda t: f"iter {t.n} step {t.n}: loss 3.4512, iter time: {t.ms:.2f}ms (optimizer.step)",
    "LitGPT": lambda t: (
        f"Epoch 1 | iter {t.n} step {t.n} | loss train: 2.345, val: n/a | iter time: {t.ms:.2f} ms (step) remaining time: 1:20:10"
    ),
    "MaxText": lambda t: (
        f"completed step: {t.n}, seconds: {t.s:.3f}, TFLOP/s/device: 87.998, Tokens/s/device: 3276.7, total_weights: 131072, loss: 8.9"
    ),
    "Composer": lambda t: (
        f"[batch={t.n}/4800]:\n\t Train time/epoch: 0\n\t Train time/batch: {t.n - 1}\n\t Train throughput/batches_per_sec: "
        f"{1 / t.s:.4f}\n\t Train throughput/device/batches_per_sec: {1 / t.s / DEVICES:.4f}\n\t Train time/train: 0.0007\n"
        "\t Train loss/train/total: 8.9"
    ),
    "OLMo": lambda t: (
        f"{t.at:%Y-%m-%dT%H:%M:%S.%f}-07:00\tjupiter-cs:0\tolmo.train:967\tINFO\t[step={t.n}/739328,epoch=0]\n"
        f"    train/CrossEntropyLoss=8.9\n    throughput/total_tokens={t.n * TOKENS}\n"
        f"    throughput/device/tokens_per_second={TOKENS / DEVICES / t.s:,.0f}\n    throughput/device/batches_per_second={1 / t.s:.4f}"
    ),
    "verl": lambda t: (
        f"(TaskRunner pid=2126429) step:{t.n} - global_seqlen/mean:2104.5 - val-core/acc:0.3 - actor/pg_loss:-0.002 - "
        f"perf/mfu/actor:0.38 - timing_s/gen:{0.6 * t.s:.4f} - timing_s/update_actor:{0.25 * t.s:.4f} - timing_s/step:{t.s:.4f} - "
        f"timing_per_token_ms/gen:0.02 - perf/time_per_step:{t.s:.4f} - perf/throughput:{2000 / t.s:.1f}"
    ),
    "slime": lambda t: (
        f"(RolloutManager pid=77) perf {t.n}: {{'perf/rollout_time': {0.6 * t.s:.4f}, 'perf/train_time': {0.3 * t.s:.4f}, "
        f"'perf/step_time': {t.s:.4f}, 'rollout/step': {t.n}}}"
    ),
    "prime-rl": lambda t: (
        f"{t.at:%H:%M:%S} SUCCESS Step {t.n} | Time: {t.s:.2f}s | Loss: 0.0123 | Entropy: 0.5 | Throughput: 12345 tokens/s | MFU: 30.1%"
    ),
    "MindFormers": lambda t: (
        f"{t.stamp} - mindformers[core/callback/callback.py:314] - INFO - {{ Epoch:[  1/  2], step:[{t.n:5d}/ 1000], loss: 10.6, "
        f"per_step_time: {t.ms:.0f}ms, lr: 1e-06, overflow cond: False, loss_scale: 1.0, train_throughput_per_npu: 171.1T"
    ),
    "PaddleNLP": lambda t: (
        f"[{t.stamp}] [    INFO] - loss: 10.9, learning_rate: 1e-05, global_step: {t.n}, interval_runtime: {t.s:.4f}, "
        f"interval_samples_per_second: {SAMPLES / t.s:.4f}, interval_steps_per_second: {1 / t.s:.4f}, progress_or_epoch: 0.1"
    ),
    "Paddle": lambda t: (
        f"[{t.at:%Y/%m/%d %H:%M:%S}] [TRAIN] global step {t.n}, epoch: 0, batch: {t.n}, loss: 10.9, avg_reader_cost: 0.00054 sec, "
        f"avg_batch_cost: {t.s:.5f} sec, speed: {1 / t.s:.2f} step/s, ips_total: {TOKENS / t.s:.0f} tokens/s, learning rate: 1e-05"
    ),
    "fairseq": lambda t: (
        f"{t.stamp[:-4]} | INFO | train_inner | epoch 001:    {t.n} / 2000 loss=9.1, ppl=500, wps={TOKENS / t.s:.1f}, ups={1 / t.s:.4f}, "
        f"wpb=8192, bsz=16, num_updates={t.n}, lr=1e-05, gnorm=1.2, train_wall={t.s:.0f}, wall={t.elapsed_s:.0f}"
    ),
    "fairseq JSON": lambda t: (
        f'{t.stamp[:-4]} | INFO | train_inner | {{"epoch": 1, "update": 0.05, "loss": "9.1", "wps": "{TOKENS / t.s:.1f}", '
        f'"ups": "{1 / t.s:.4f}", "wpb": "8192", "num_updates": "{t.n}", "lr": "1e-05", "wall": "{t.elapsed_s:.0f}"}}'
    ),
    "ESPnet": lambda t: (
        f"[node12] {t.stamp} (trainer:762) INFO: 1epoch:train:{t.n}-{t.n}batch: iter_time=1.2e-04, forward_time={0.3 * t.s:.3f}, "
        f"loss=95.1, backward_time={0.5 * t.s:.3f}, optim_step_time=0.02, train_time={t.s:.3f}"
    ),
    "timm": lambda t: (
        f"Train: 0 [{t.n:4d}/1251 ({100 * t.n / 1251:3.0f}%)]  Loss: 6.95 (6.95)  Time: {t.s:.3f}s, {1024 / t.s:7.2f}/s  "
        f"(1.999s,  512.10/s)  LR: 1.0e-06  Data: 0.010 (0.012)"
    ),
    "ImageNet example": lambda t: (
        f"Epoch: [0][{t.n:5d}/5005]\tTime {t.s:6.3f} ( 1.999)\tData  0.001 ( 0.022)\tLoss 6.95 (6.96)\tAcc@1   0.00 (  0.10)"
    ),
    "torchvision": lambda t: (
        f"Epoch: [0]  [{t.n:5d}/10009]  eta: 0:42:10  lr: 0.1  img/s: {512 / t.s:.2f}  loss: 6.95 (6.98)  acc1: 0.0 (0.1)  "
        f"time: {t.s:.4f}  data: 0.0010  max mem: 8000"
    ),
    "MMEngine": lambda t: (
        f"{t.at:%Y/%m/%d %H:%M:%S} - mmengine - INFO - Epoch(train)  [1][{t.n:5d}/7330]  lr: 1.98e-05  eta: 4:10:02  time: {t.s:.4f}  "
        "data_time: 0.0120  memory: 4010  loss: 5.2"
    ),
    "MMEngine iterations": lambda t: (
        f"{t.at:%m/%d %H:%M:%S} - mmengine - INFO - Iter(train) [{t.n:6d}/160000]  lr: 6e-05  eta: 22:10:02  time: {t.s:.4f}  "
        "data_time: 0.0084  memory: 9000"
    ),
    "Detectron2": lambda t: (
        f"[{t.at:%m/%d %H:%M:%S} d2.utils.events]:  eta: 12:40:11  iter: {t.n}  total_loss: 5.1  loss_cls: 4.3  time: {t.s:.4f}  "
        f"last_time: {t.s:.4f}  data_time: 0.0140  last_data_time: 0.0021  lr: 2e-05  max_mem: 8000M"
    ),
    "Transformer-XL": lambda t: (
        f"| epoch   1 step {t.n:8d} | {t.n:6d} batches | lr 0.00025 | ms/batch {t.ms:5.2f} | loss  6.9 | ppl 1000"
    ),
    "word_language_model": lambda t: (
        f"| epoch   1 | {t.n:5d}/ 2983 batches | lr 20.00 | ms/batch {t.ms:5.2f} | loss  6.90 | ppl  1000"
    ),
    "BMTrain": lambda t: (
        f"| Iter: {t.n:6d} | loss: 9.1 average_loss: 9.3 | lr: 1e-4 scale: 32768 | time: {t.s:.4f} | token/max: 0.95 | mask: 0.3"
    ),
    "train.py with logging": lambda t: f"INFO:root:step {t.n}, loss 2.31, step time {t.s:.3f} s",
    "took": lambda t: f"{t.stamp} [trainer] Step {t.n} took {t.s:.3f} seconds (loss 2.3)",
    "sec/step": lambda t: (
        f"I0304 {t.at:%H:%M:%S.%f} 1399 learning.py:507] global step {t.n}: loss = 2.3 ({t.s:.3f} sec/step)"
    ),
    "T5X": lambda t: (
        f"I0304 {t.at:%H:%M:%S.%f} 139934 logging_writer.py:48] [{t.n}] step={t.n}, learning_rate=0.01, loss=2.3, "
        f"timing/steps_per_second={1 / t.s:.5f}, timing/seqs_per_second={SAMPLES / t.s:.3f}"
    ),
    "steps/s": lambda t: f"step {t.n}: loss 2.31, {1 / t.s:.4f} steps/s, {TOKENS / t.s:.0f} tokens/s",
    "key=value": lambda t: (
        f"ts={t.elapsed_s:.3f} level=info msg=step step={t.n} loss=2.3 step_time_ms={t.ms:.2f} lr=1e-4"
    ),
    "JSON behind a prefix": lambda t: (
        f"{t.stamp} INFO metrics {json.dumps({'global_step': t.n, 'loss': 2.3, 'iteration_time': t.s, 'tokens_per_second': 1e6})}"
    ),
    "Slurm, colours": lambda t: (
        f"12: \x1b[32m{t.stamp}\x1b[0m \x1b[1mstep\x1b[0m: \x1b[36m{t.n}\x1b[0m loss: 2.3 step_time: \x1b[33m{t.s:.3f}s\x1b[0m"
    ),
}
"""Step times or rates of steps stand in the line."""

BY_BAR: dict[str, Writes] = {
    "diffusers": lambda t: f"Steps: {t.bar(15000, ', lr=1e-5, step_loss=0.1')}",
    "Lightning": lambda t: f"Epoch 0: {t.bar(5000, ', v_num=0, train_loss=2.3')}",
    "torchtune": lambda t: f"1|{t.n}|Loss: 1.523: {t.bar(5000)}",
    "OpenRLHF": lambda t: f"Train epoch [1/1]: {t.bar(5000, ', gpt_loss=1.2, lr=5e-6')}",
    "EasyLM": lambda t: t.bar(250000),
    "bar of unknown length": lambda t: f"training: {t.n}it [{t.hms}, {t.s:5.2f}s/it, loss=2.3]",
    "HF Trainer with other bars": lambda t: (
        f"Loading checkpoint shards: 100%|####| {t.n % 7}/7 [00:0{t.n % 7}<00:00,  1.9s/it]\n{t.bar(5000)}"
    ),
    "Lightning with rich": lambda t: (
        f"Epoch 0/9  ------ {t.n}/1000 {int(t.elapsed_s) // 3600}:{int(t.elapsed_s) // 60 % 60:02d}:{int(t.elapsed_s) % 60:02d} "
        f"\u2022 0:30:00 {1 / t.s:.4f}it/s v_num: 0 loss: 2.3"
    ),
    "Levanter": lambda t: (
        f"{START:%Y-%m-%dT%H:%M:%S} - 0 - tqdm_logging - INFO :: Progress on:train {t.n}.0it/100it rate:{t.s:.2f}s/it remaining:03:00 "
        f"elapsed:{t.hms} postfix:loss:9.5"
    ),
    "dated bar": lambda t: f"{t.stamp[:-4]} INFO {t.bar(5000)}",
}
"""The rate stands in a bar."""

BY_CLOCK: dict[str, Writes] = {
    "modded-nanogpt": lambda t: (
        f"step:{t.n}/5100 train_loss:3.2801 train_time:{1e3 * t.elapsed_s:.0f}ms step_avg:{1e3 * t.elapsed_s / t.n:.2f}ms"
    ),
    "OpenNMT": lambda t: (
        f"{t.stamp} Step {t.n}/100000; acc: 1.2; ppl: 900.1; xent: 6.8; lr: 0.001; sents: 512; 12345/12345 tok/s; {t.elapsed_s:.0f} sec;"
    ),
    "InternEvo": lambda t: (
        f"{t.stamp}\tINFO record_metrics.py:279 in record_current_batch_training_metrics -- tflops=188.1 step={t.n} loss=11.6 "
        f"tgs (tokens/gpu/second)={TOKENS / DEVICES / t.s:.2f} lr=1e-06 grad_norm=63.6 micro_num=4 num_consumed_tokens={t.n * TOKENS}"
    ),
    "torchtitan": lambda t: (
        f"[rank0]:[titan] {t.stamp} - root - INFO - step: {t.n:2}  loss:  8.9  memory: 47.31GiB(59.75%)  tps: {8192 / t.s:,.0f}  "
        "tflops: 420.1  mfu: 42.48%"
    ),
    "DeepSpeed": lambda t: (
        f"[{t.stamp}] [INFO] [logging.py:96:log_dist] [Rank 0] step={t.n}, skipped=0, lr=[2e-06], mom=[[0.9, 0.95]]"
    ),
    "dated records": lambda t: (
        f"{t.stamp} - INFO - {{'loss': 2.31, 'learning_rate': 4.9e-05, 'epoch': 0.02, 'step': {t.n}}}"
    ),
    "loguru": lambda t: (
        f"{t.at:%Y-%m-%d %H:%M:%S.%f} | INFO     | __main__:train:120 - step {t.n} | loss 2.31 | lr 1e-4"
    ),
    "absl": lambda t: f"I0304 {t.at:%H:%M:%S.%f} 140 train.py:80] train step {t.n}: loss 2.31",
    "time of day alone": lambda t: f"[{t.at:%H:%M:%S.%f}] step {t.n} loss 2.31",
}
"""Only the time of day says how long a step took, to milliseconds."""

BY_RATE: dict[str, Writes] = {
    "rate and whole seconds": lambda t: (
        f"{t.at:%Y-%m-%d %H:%M:%S} | INFO | step {t.n} | loss 2.3 | tokens-per-second {TOKENS / t.s:,.0f}"
    ),
    "torchtune": lambda t: (
        f"[{t.at:%Y-%m-%d %H:%M:%S}] Step {t.n} | loss:1.52 lr:2e-05 tokens_per_second_per_gpu:{8192 / t.s:.4f}"
    ),
}
"""A rate of work, and a clock that is too coarse for single steps."""


def write(line: Writes, step_s: list[float], every: int = 1) -> str:
    """A log with a line of every step, or of every few."""
    text, elapsed_s = "starting 3 workers, seed 1234\nmodel has 8,030,261,248 parameters\n", 0.0
    for n, s in enumerate(step_s, start=1):
        elapsed_s += s
        if n % every == 0:
            text += line(Step(n, s, elapsed_s)) + "\n"
    return text + "done\n"
