"""Tiny random models that tests write to disk: a Hugging Face directory, or a GGUF file, around a tokenizer. Weights are noise from a seed."""
import json
import os
import struct

import gguf
import numpy as np

WIDTH, FFN, HEADS, KV_HEADS, CONTEXT = 32, 48, 4, 2, 4096
LAYER = {"self_attn.q_proj": (WIDTH, WIDTH), "self_attn.k_proj": (WIDTH // 2, WIDTH), "self_attn.v_proj": (WIDTH // 2, WIDTH),
         "self_attn.o_proj": (WIDTH, WIDTH), "mlp.gate_proj": (FFN, WIDTH), "mlp.up_proj": (FFN, WIDTH), "mlp.down_proj": (WIDTH, FFN),
         "input_layernorm": (WIDTH,), "post_attention_layernorm": (WIDTH,)}


def noise(shape):
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32) / 4


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w") as out:
        json.dump(value, out)


def write_folder(folder, tokenizer, rows, files=None):
    """A Llama of one layer with `rows` embeddings and `tokenizer` (text of a tokenizer.json); `files`: more JSON files by name."""
    os.makedirs(folder, exist_ok=True)
    write_json(folder, "config.json", {
        "model_type": "llama", "vocab_size": rows, "hidden_size": WIDTH, "intermediate_size": FFN, "num_hidden_layers": 1,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "max_position_embeddings": CONTEXT, "tie_word_embeddings": True})
    tensors = {f"model.layers.0.{name}.weight": noise(shape) for name, shape in LAYER.items()}
    write_safetensors(os.path.join(folder, "model.safetensors"),
                      {"model.embed_tokens.weight": noise((rows, WIDTH)), "model.norm.weight": noise((WIDTH,)), **tensors})
    with open(os.path.join(folder, "tokenizer.json"), "w") as out:
        out.write(tokenizer)
    for name, value in (files or {}).items():
        write_json(folder, name, value)
    return str(folder)


GGUF_NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
              "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
              "post_attention_layernorm": "ffn_norm"}


def write_gguf(path, tokens, add_tokenizer, tensors=None, width=WIDTH):
    """The same model as a GGUF file; `add_tokenizer(writer)` adds the tokenizer's keys. `tensors`: instead of noise, by GGUF name: an array of
    f32, or (bytes, type) of quantised rows."""
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(1)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(width if tensors else FFN)
    writer.add_context_length(CONTEXT)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_token_list(tokens)
    add_tokenizer(writer)
    noises = {"token_embd.weight": (len(tokens), WIDTH), "output_norm.weight": (WIDTH,), **{f"blk.0.{GGUF_NAMES[n]}.weight": s for n, s in LAYER.items()}}
    for name, tensor in (tensors or {name: noise(shape) for name, shape in noises.items()}).items():
        if isinstance(tensor, tuple):
            writer.add_tensor(name, tensor[0], raw_dtype=tensor[1])
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)
