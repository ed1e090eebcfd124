"""The tokenizer equals Hugging Face `tokenizers`, built from the same file's vocabulary and merges, on random text (TOK-03, TOK-04)."""
import os
import random

from fleet import Replica, free_ports, post
from gguf import GGUFReader
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

MODEL = os.environ.get("KVRING_MODEL", os.path.expanduser("~/.cache/kvring/SmolLM2-135M-Instruct.Q4_1.gguf"))
STRINGS = 400


def reference():
    fields = GGUFReader(MODEL).fields

    def strings(key):
        field = fields[key]
        return [bytes(field.parts[i]).decode() for i in field.data]

    vocabulary = {token: i for i, token in enumerate(strings("tokenizer.ggml.tokens"))}
    merges = [tuple(merge.split(" ")) for merge in strings("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def random_text(rng):
    kinds = [lambda: rng.choice(["the", "don't", "I'LL", "we've", "café", "日本語", "Ünïcödé", "x=1", "\r\n\r\n", "\t\t", "  ", "   x", "\u2029 \uA3E4", "👨‍👩‍👧", "é\u0301"]),
             lambda: str(rng.randint(0, 10**9)),
             lambda: chr(rng.choice([rng.randint(0x20, 0x7E), rng.randint(0xA0, 0x24F), rng.randint(0x370, 0x5FF), rng.randint(0x3000, 0x30FF), rng.randint(0x1F300, 0x1F6FF)])),
             lambda: rng.choice([" ", "\n", " ", ""])]
    return "".join(rng.choice(kinds)() for _ in range(rng.randint(1, 60)))


def test_random_text_has_the_same_ids():
    rng = random.Random(3)
    expected = reference()
    replica = Replica(*free_ports(2)).wait_ready()
    try:
        for _ in range(STRINGS):
            text = random_text(rng)
            ids = expected.encode(text).ids
            if not ids:
                continue
            got = post(replica.url + "/tokenize", {"prompt": text}).json["tokens"]
            assert got == ids, repr(text)
    finally:
        replica.stop()
