"""Makes the tiny models of testdata/families and their golden logits: random weights from a seed in the real config
layout of each family, logits by transformers on the CPU in fp32 (weights as stored).
    pip install torch transformers safetensors; python make_golden.py [FAMILY…]
"""
import json
import os
import sys

import torch
import transformers as t
from safetensors.torch import save_file

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "families")
TOKENS = 40
GREEDY = 24
COMMON = dict(vocab_size=48, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16, rope_theta=10000.0)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, rope_theta=10000.0)
LINEAR = dict(rope_type="linear", factor=4.0, rope_theta=10000.0)
FAMILIES = {
    "llama3": (t.LlamaConfig(**COMMON, rope_parameters=LLAMA3, tie_word_embeddings=False), torch.bfloat16),
    "mistral": (t.MistralConfig(**COMMON, sliding_window=9, tie_word_embeddings=False), torch.float16),
    "qwen2": (t.Qwen2Config(**COMMON, rope_parameters=YARN, tie_word_embeddings=True), torch.bfloat16),
    # One layer sees everything, the other a window.
    "qwen2_mixed": (t.Qwen2Config(**COMMON, use_sliding_window=True, sliding_window=9, max_window_layers=1,
                                  tie_word_embeddings=True), torch.bfloat16),
    "qwen3": (t.Qwen3Config(**COMMON, head_dim=16, rope_parameters=LINEAR, tie_word_embeddings=True), torch.bfloat16),
    "gpt2": (t.GPT2Config(vocab_size=48, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=1,
                          eos_token_id=2), torch.float16),
}


def randomise(model, dtype):
    for name, parameter in model.named_parameters():
        scale = 0.5 if parameter.dim() == 1 else 3.0 / parameter.shape[-1] ** 0.5
        base = 1.0 if "norm" in name and name.endswith("weight") or ".ln_" in name and name.endswith("weight") else 0.0
        # Parameters alone are rounded: RoPE's frequencies are a buffer and stay fp32.
        parameter.data = (base + scale * torch.randn(parameter.shape)).to(dtype).float()


def greedy(model, prompt):
    """Tokens after the prompt by full recomputation, and how far the best logit was ahead of the second."""
    ids, margins = list(prompt), []
    for _ in range(GREEDY):
        with torch.no_grad():
            best = model(torch.tensor([ids]), use_cache=False).logits[0, -1].topk(2)
        ids.append(best.indices[0].item())
        margins.append(round((best.values[0] - best.values[1]).item(), 4))
    return {"prompt": list(prompt), "tokens": ids[len(prompt):], "margins": margins}


def main():
    for name in sys.argv[1:] or FAMILIES:
        config, dtype = FAMILIES[name]
        torch.manual_seed(7)
        config._attn_implementation = "eager"
        model = t.AutoModelForCausalLM.from_config(config).float().eval()
        randomise(model, dtype)
        model.tie_weights()
        ids = torch.randint(3, 48, (1, TOKENS))
        with torch.no_grad():
            logits = model(ids, use_cache=False).logits[0]
        folder = os.path.join(HERE, name)
        os.makedirs(folder, exist_ok=True)
        tensors = {k: v.to(dtype).contiguous() for k, v in model.state_dict().items()
                   if not (k == "lm_head.weight" and config.tie_word_embeddings)}
        save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        config.save_pretrained(folder)
        golden = {"engine": f"transformers {t.__version__} torch {torch.__version__} fp32", "ids": ids[0].tolist(),
                  "logits": {p: [round(v, 5) for v in logits[p].tolist()] for p in (0, 1, 15, 39)},
                  "greedy": [greedy(model, ids[0, :n].tolist()) for n in (3, 16, 38)]}
        with open(os.path.join(folder, "golden.json"), "w") as out:
            json.dump(golden, out)
            out.write("\n")


main()
