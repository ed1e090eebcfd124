"""Every tensor type of GGUF that we read computes what gguf-py's own dequantiser says: a model with its matrices in that type, and the same
model with them written out in F32, served by the real binary, give the same tokens and log-probabilities."""
import math

import gguf
import numpy as np
import pytest
from fleet import Replica, free_ports, post
from gguf import GGMLQuantizationType as Type
from model_folder import HEADS, KV_HEADS, write_gguf

WIDTH = 256  # a block of the K types
ALPHABET = [chr(c) for c in range(33, 33 + 64)]
KV_WIDTH = WIDTH // HEADS * KV_HEADS
SHAPES = {"token_embd": (64, WIDTH), "blk.0.attn_q": (WIDTH, WIDTH), "blk.0.attn_k": (KV_WIDTH, WIDTH), "blk.0.attn_v": (KV_WIDTH, WIDTH),
          "blk.0.attn_output": (WIDTH, WIDTH), "blk.0.ffn_gate": (WIDTH, WIDTH), "blk.0.ffn_up": (WIDTH, WIDTH), "blk.0.ffn_down": (WIDTH, WIDTH)}
NORMS = ["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"]
# Where the f16 scales lie in a block of the types that gguf-py reads but does not write.
SCALES = {Type.Q4_K: [0, 2], Type.Q6_K: [208]}


def random_rows(rng, shape, kind):
    """Rows in the type, as bytes."""
    if kind not in SCALES:
        return gguf.quants.quantize(rng.standard_normal(shape).astype(np.float32) / 4, kind)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (shape[0] * shape[1] // block, size), dtype=np.uint8)
    for at in SCALES[kind]:
        scales = rng.uniform(0.0005, 0.002, len(data)).astype(np.float16)
        data[:, at:at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return data.reshape(shape[0], -1)


def answer(path, *options):
    replica = Replica(*free_ports(2), None, "--model", str(path), "--kv-tokens", "256", *options).wait_ready()
    try:
        choice = post(replica.url + "/v1/completions", {"prompt": "ABCabc!?xyz(12)", "max_tokens": 12, "temperature": 0, "logprobs": 5}).json["choices"][0]
        return choice["text"], choice["logprobs"]["token_logprobs"]
    finally:
        replica.stop()


@pytest.mark.parametrize("kind", [Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q4_K, Type.Q6_K], ids=lambda kind: kind.name)
def test_each_type_computes_what_its_f32_copy_does(kind, tmp_path):
    rng = np.random.default_rng(int(kind))
    quantised = {f"{name}.weight": random_rows(rng, shape, kind) for name, shape in SHAPES.items()}
    norms = {f"{name}.weight": rng.uniform(0.5, 1.5, WIDTH).astype(np.float32) for name in NORMS}
    plain = {name: gguf.quants.dequantize(data, kind).astype(np.float32) for name, data in quantised.items()}

    def keys(writer):
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")

    in_type = {name: data if kind == Type.F32 else (data.view(np.uint8), kind) for name, data in quantised.items()}
    write_gguf(tmp_path / "type.gguf", ALPHABET, keys, {**norms, **in_type}, WIDTH)
    write_gguf(tmp_path / "f32.gguf", ALPHABET, keys, {**norms, **plain}, WIDTH)
    text, logprobs = answer(tmp_path / "type.gguf", "--exact")
    expected_text, expected = answer(tmp_path / "f32.gguf", "--exact")
    assert text == expected_text and len(text) == 12
    assert all(math.isclose(a, b, abs_tol=1e-4) for a, b in zip(logprobs, expected)), (logprobs, expected)
    # The fast path: other roundings, the same function.
    fast = answer(tmp_path / "type.gguf")[1]
    assert abs(fast[0] - expected[0]) < 0.2, (fast, expected)
