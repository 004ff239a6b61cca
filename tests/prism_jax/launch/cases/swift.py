"""ms-swift on Megatron: command lines."""

from .case import Case, but

TEXT = """# 8 * 65GiB
PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' \\
NPROC_PER_NODE=8 \\
CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 \\
megatron sft \\
    --model Qwen/Qwen3-30B-A3B-Base \\
    --load_safetensors true \\
    --dataset 'AI-ModelScope/alpaca-gpt4-data-zh#500' \\
              'swift/self-cognition#500' \\
    --tensor_model_parallel_size 2 \\
    --expert_model_parallel_size 4 \\
    --sequence_parallel true \\
    --moe_permute_fusion true \\
    --moe_grouped_gemm true \\
    --micro_batch_size 1 \\
    --global_batch_size 16 \\
    --packing true \\
    --recompute_granularity full \\
    --recompute_method uniform \\
    --recompute_num_layers 1 \\
    --max_length 8192 \\
    --cross_entropy_loss_fusion true \\
    --lr 1e-5 \\
    --attention_backend flash
"""
BASE = Case(
    "experts",
    TEXT,
    {"layers": 48, "hidden": 2048, "heads": 32, "kv": 4, "experts": 128, "top_k": 8, "seq": 8192, "micro": 1, "batch": 16, "tp": 2,
     "pp": 1, "ep": 4, "gpus": 8, "dtype": "bf16", "recompute": "full", "zero": 1},
)  # fmt: skip
DENSE = {"layers": 28, "hidden": 3584, "ffn": 18944, "heads": 28, "kv": 4, "experts": 0, "top_k": 1, "ep": 1}
MODEL = "--model Qwen/Qwen3-30B-A3B-Base"
CASES = [
    BASE,
    but(BASE, "converted checkpoint", (MODEL, "--load Qwen2.5-7B-Instruct-mcore"), expected=DENSE),
    but(BASE, "path", (MODEL, '--model "${HOME_OF:-/data}/models/Qwen2.5-7B-Instruct"'), expected=DENSE),
    but(BASE, "open model", (MODEL, "--model $MODEL"), refused=r"\$MODEL \(line 6.*--env MODEL"),
    but(BASE, "given model", (MODEL, "--model $MODEL"), variables={"MODEL": "Qwen/Qwen2.5-7B"}, expected=DENSE),
    but(BASE, "unknown model", (MODEL, "--model corp/secret-9b"), refused=r"line 6: .*secret-9b.*--model config.json"),
    but(BASE, "nodes", ("NPROC_PER_NODE=8", "NNODES=4 NPROC_PER_NODE=8"), expected={"gpus": 32, "dp": 16}),
    but(BASE, "open nodes", ("NPROC_PER_NODE=8", "NNODES=$WORLD_NODES NPROC_PER_NODE=8"), refused=r"\$WORLD_NODES.*--gpus N"),
    but(BASE, "exported", ("# 8 * 65GiB", "export NNODES=2"), expected={"gpus": 16, "dp": 8}),
    but(BASE, "stages", ("--sequence_parallel true", "--pipeline_model_parallel_size 2 --decoder_first_pipeline_num_layers 23"),
        expected={"pp": 2, "split": "[23, 25]", "dp": 2}),
    but(BASE, "adapters", ("--packing true", "--train_type lora --lora_rank 16 --target_modules all-linear"),
        expected={"model.adapters.rank": 16, "model.adapters.targets": "['all']"}),
    but(BASE, "some recomputation", ("granularity full", "granularity selective"), expected={"recompute": "selective"}),
    but(BASE, "pretraining", ("megatron sft", "megatron pt")),
    but(BASE, "context", ("--sequence_parallel true", "--context_parallel_size 2"), expected={"cp": 2, "dp": 2}),
    but(BASE, "a conversion is no training", ("megatron sft", "swift export --to_mcore true"), ("--micro_batch_size 1", ""), refused="no command line"),
]  # fmt: skip
