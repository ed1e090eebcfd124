"""Tokens equal those of Hugging Face `tokenizers` and of `sentencepiece` on random text (TOK-03, TOK-04): the bundled model's vocabulary, and
small ones trained here under the pre-tokenizers, normalizers and added tokens of GPT-2, Llama 3, Qwen2, SmolLM2, Llama 2 and Mistral, each read
from a tokenizer.json and, where the format has it, from GGUF. KVRING_TOKENIZER_STRINGS: strings per vocabulary (200,000 in a full run)."""
import http.client
import io
import json
import os
import random

import pytest
import sentencepiece
from fleet import Replica, free_ports
from gguf import GGUFReader
from model_folder import write_folder, write_gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

MODEL = os.environ.get("KVRING_MODEL", os.path.expanduser("~/.cache/kvring/SmolLM2-135M-Instruct.Q4_1.gguf"))
STRINGS = int(os.environ.get("KVRING_TOKENIZER_STRINGS", "2000"))
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")


def random_text(rng):
    kinds = [lambda: rng.choice(["the", "don't", "I'LL", "we've", "café", "日本語", "Ünïcödé", "x=1", "\r\n\r\n", "\t\t", "  ", "   x", "\u2029 \uA3E4", "👨‍👩‍👧", "e\u0301", "한국어", "\u1112\u1161\u11ab",
                                 "▁", "<0x41>", "a\u0301\u0323", "\u00a0", "\u3000", "ﬁ", "\ufeff", "return 0;\n\n    }"]),
             lambda: str(rng.randint(0, 10**9)),
             lambda: "".join(rng.choice("0123456789abcXYZ") for _ in range(rng.randint(1, 12))),
             lambda: chr(rng.choice([rng.randint(0x20, 0x7E), rng.randint(0xA0, 0x24F), rng.randint(0x370, 0x5FF), rng.randint(0x3000, 0x30FF), rng.randint(0x1F300, 0x1F6FF)])),
             lambda: rng.choice([" ", "\n", " ", ""])]
    return "".join(rng.choice(kinds)() for _ in range(rng.randint(1, 60)))


def corpus():
    """Text of this repository's own pages, and some of what the random strings hold."""
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
    lines = []
    for name in ["README.md", "kernels/README.md", "replica/README.md", "tests/README.md", "kernels/attention.h", "replica/model/tokenizer.h"]:
        with open(os.path.join(root, name)) as page:
            lines += page.read().splitlines(keepends=True)
    rng = random.Random(11)
    return lines + [random_text(rng).replace("<0x41>", "") for _ in range(300)]  # no merge may make the name of a byte


# --- vocabularies by Hugging Face ---

def byte_level(pre_tokenizer, normalizer=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("\n\n\n", normalized=False)])
    return tokenizer


def split(expression):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(expression), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))


def llama3():
    tokenizer = byte_level(split(LLAMA3), ignore_merges=True)
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", tokenizer.token_to_id("<|endoftext|>"))])])
    return tokenizer


def qwen2():
    return byte_level(split(QWEN2), normalizers.NFC())


def smollm():
    return byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]))


def roberta():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))


def sentencepiece_like(finish):
    """A vocabulary with a token per byte and merges over U+2581, as SpmConverter of transformers lays it out."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=900, show_progress=False, limit_alphabet=150))
    state = json.loads(trained.to_str())["model"]
    order = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + sorted(state["vocab"], key=state["vocab"].get)
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(order)}, [tuple(m) for m in state["merges"]], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    finish(tokenizer)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in ["<unk>", "<s>", "</s>"]])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def llama2():
    def finish(tokenizer):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return sentencepiece_like(finish)


def mistral():
    def finish(tokenizer):
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    return sentencepiece_like(finish)


def metaspace():
    def finish(tokenizer):
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    return sentencepiece_like(finish)


# --- the replica's side ---

class Encoder:
    """/tokenize of a replica over one connection."""

    def __init__(self, model):
        self.replica = Replica(*free_ports(2), None, "--model", model, "--kv-tokens", "64").wait_ready()
        self.connection = http.client.HTTPConnection(self.replica.url[len("http://"):])

    def ids(self, text):
        self.connection.request("POST", "/tokenize", json.dumps({"prompt": text}), {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        body = json.loads(answer.read())
        assert answer.status == 200, body
        return body["tokens"]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.connection.close()
        self.replica.stop()


# What users reported, and code points from everywhere.
ODD = ["\u2029 \uA3E4", "   x", "a\r\n\r\nb", "\t\t", "👨‍👩‍👧", "Café déjà vu — 123 😊", "\0", "a\0b", "\ufeffa", "1234567 3.14 v10", "\u180e\u0085\u200b ", "a\U00031350\U00013460 \U0001E4F0b"]


def random_code_points(rng, count):
    return "".join(chr(code if not 0xD800 <= code < 0xE000 else 0x20) for code in (rng.randrange(0x110000) for _ in range(count)))


def expect_same_ids(model, expected_ids, specials=()):
    rng = random.Random(5)
    with Encoder(model) as encoder:
        for text in ODD + [random_code_points(rng, 200) for _ in range(STRINGS // 10)]:
            assert encoder.ids(text) == expected_ids(text), repr(text)
        for _ in range(STRINGS):
            text = random_text(rng)
            if specials and rng.random() < 0.3:
                text = text[:rng.randint(0, len(text))] + rng.choice(specials) + text[rng.randint(0, len(text)):]
            ids = expected_ids(text)
            if ids:
                assert encoder.ids(text) == ids, repr(text)


BYTE_LEVEL = {"gpt2": gpt2, "llama3": llama3, "qwen2": qwen2, "smollm": smollm, "roberta": roberta}
SENTENCEPIECE = {"llama2": llama2, "mistral": mistral, "metaspace": metaspace}


@pytest.mark.parametrize("family", [*BYTE_LEVEL, *SENTENCEPIECE])
def test_tokenizer_json_has_the_same_ids_TOK_03_TOK_04(family, tmp_path):
    tokenizer = {**BYTE_LEVEL, **SENTENCEPIECE}[family]()
    model = write_folder(tmp_path, tokenizer.to_str(), tokenizer.get_vocab_size() + 5)
    # Behind a BOS, one that is typed is no second one (TOK-07): Hugging Face would write two.
    bos = {"llama3": "<|endoftext|>"}.get(family, "<s>")
    specials = [t for t in ["<|endoftext|>", "<|im_start|>", "<tool>", "\n\n\n", "</s>"] if tokenizer.token_to_id(t) is not None and t != bos]
    expect_same_ids(model, lambda text: tokenizer.encode(text).ids, specials)


@pytest.mark.parametrize("family", ["gpt2", "llama3", "qwen2", "smollm"])
def test_gguf_pre_tokenizers_have_the_same_ids_TOK_03(family, tmp_path):
    tokenizer = BYTE_LEVEL[family]()
    state = json.loads(tokenizer.to_str())
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    added = {t["id"]: 3 if t["special"] else 4 for t in state["added_tokens"]}

    def keys(writer):
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre({"llama3": "llama-bpe", "gpt2": "gpt-2"}.get(family, family))
        writer.add_token_types([added.get(i, 1) for i in range(len(tokens))])
        writer.add_token_merges([" ".join(m) for m in state["model"]["merges"]])

    model = write_gguf(tmp_path / "m.gguf", tokens, keys)
    expect_same_ids(model, lambda text: tokenizer.encode(text, add_special_tokens=False).ids, ["<|im_start|>", "<tool>"])


def test_gguf_of_sentencepiece_has_the_ids_of_sentencepiece(tmp_path):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=out, vocab_size=1100, model_type="bpe", byte_fallback=True, character_coverage=0.98,
        normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=True, split_digits=True, minloglevel=2,
        allow_whitespace_only_pieces=True)
    reference = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    count = reference.get_piece_size()

    def kind(i):
        return 2 if reference.is_unknown(i) else 3 if reference.is_control(i) else 6 if reference.is_byte(i) else 5 if reference.is_unused(i) else 1

    def keys(writer):
        writer.add_tokenizer_model("llama")
        writer.add_token_scores([reference.get_score(i) for i in range(count)])
        writer.add_token_types([kind(i) for i in range(count)])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)

    model = write_gguf(tmp_path / "m.gguf", [reference.id_to_piece(i) for i in range(count)], keys)
    expect_same_ids(model, lambda text: [1] + reference.encode(text))


def test_the_bundled_vocabulary_has_the_same_ids_TOK_03_TOK_04():
    fields = GGUFReader(MODEL).fields

    def strings(key):
        return [bytes(fields[key].parts[i]).decode() for i in fields[key].data]

    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(strings("tokenizer.ggml.tokens"))}, [tuple(m.split(" ")) for m in strings("tokenizer.ggml.merges")]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    expect_same_ids(MODEL, lambda text: tokenizer.encode(text).ids)
