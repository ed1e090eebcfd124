"""The chat templates of the families (chat_templates/*.jinja, as their models ship them) render as Python's jinja2 does in the environment that
transformers gives it: random chats, tools, tool calls and results, refusals of the template among them."""
import glob
import json
import os
import random

import jinja2.sandbox
import pytest
from fleet import Replica, free_ports, post
from model_folder import write_folder
from test_tokenizer_reference import BYTE_LEVEL, SENTENCEPIECE
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

TEMPLATES = sorted(glob.glob(os.path.join(os.path.dirname(__file__), "chat_templates", "*.jinja")))
SPECIALS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
CHATS = 40
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Says the weather – “now”.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}}, "required": ["city"]}}}]


def reference(source):
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    environment.globals["raise_exception"] = raise_exception
    return environment.from_string(source)


def tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(SPECIALS)
    return made


def random_content(rng):
    words = ["hello", " world", "\n", "  ", "\n\n", "é", "日本", "😀", "{{ x }}", "{% raw %}", "<|im_end|>", "[INST]", "'q'", '"', "\\n", "<think>a</think>", "12"]
    return "".join(rng.choice(words) for _ in range(rng.randint(0, 8)))


def random_chat(rng):
    messages = [{"role": "system", "content": random_content(rng)}] if rng.random() < 0.4 else []
    for turn in range(rng.randint(1, 5)):
        messages.append({"role": "user", "content": random_content(rng)})
        if rng.random() < 0.15:
            arguments = {"city": random_content(rng), "days": rng.randint(1, 9)}
            messages.append({"role": "assistant", "content": random_content(rng), "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": json.dumps(arguments)}}]})
            messages.append({"role": "tool", "content": random_content(rng), "tool_call_id": "c1"})
        if rng.random() < 0.9:
            messages.append({"role": "assistant", "content": random_content(rng)})
    return messages


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: os.path.basename(path)[:-len(".jinja")])
def test_template_renders_as_jinja2(path, tmp_path):
    with open(path, newline="") as file:
        source = file.read()
    made = tokenizer()
    folder = write_folder(tmp_path, made.to_str(), made.get_vocab_size(), {"tokenizer_config.json": {
        "bos_token": "<s>", "eos_token": "</s>", "chat_template": source}})
    template, rng, compared = reference(source), random.Random(7), 0
    replica = Replica(*free_ports(2), None, "--model", folder, "--kv-tokens", "64").wait_ready()
    try:
        for _ in range(CHATS):
            messages = random_chat(rng)
            body = {"messages": messages, **({"tools": TOOLS} if rng.random() < 0.3 else {})}
            answer = post(replica.url + "/tokenize", body)
            try:
                expected = template.render(**body, add_generation_prompt=True, bos_token="<s>", eos_token="</s>")
            except jinja2.exceptions.TemplateError as refusal:
                assert answer.status == 400 and str(refusal) in answer.json["error"]["message"], (refusal, answer.body)
                continue
            assert answer.status == 200, (answer.body, messages)
            assert made.decode(answer.json["tokens"], skip_special_tokens=False) == expected, messages
            compared += 1
    finally:
        replica.stop()
    assert compared > CHATS / 5


@pytest.mark.parametrize("family,template_name", [("llama2", "llama2"), ("mistral", "mistral"), ("metaspace", "llama2"), ("qwen2", "qwen2_5"), ("llama3", "chatml")])
def test_chat_has_the_ids_that_tokenizers_gives_the_rendered_text(family, template_name, tmp_path):
    """The pieces between control tokens are encoded one by one and remembered; together they are what the whole text encodes to."""
    with open(os.path.join(os.path.dirname(__file__), "chat_templates", template_name + ".jinja"), newline="") as file:
        source = file.read()
    made = {**BYTE_LEVEL, **SENTENCEPIECE}[family]()
    bos, eos = ("<s>", "</s>") if family in SENTENCEPIECE else ("<|endoftext|>", "<|im_end|>")
    folder = write_folder(tmp_path, made.to_str(), made.get_vocab_size(), {"tokenizer_config.json": {
        "bos_token": bos, "eos_token": eos, "add_bos_token": False, "chat_template": source}})
    template, rng = reference(source), random.Random(9)
    replica = Replica(*free_ports(2), None, "--model", folder, "--kv-tokens", "64").wait_ready()
    try:
        for _ in range(CHATS):
            messages = []
            for _turn in range(rng.randint(1, 4)):
                for role in ("user", "assistant"):
                    messages.append({"role": role, "content": random_content(rng).replace("<|im_end|>", "")})
            messages.append({"role": "user", "content": "the end of a long, long chat, the\nend"})
            expected = made.encode(template.render(messages=messages, add_generation_prompt=True, bos_token=bos, eos_token=eos), add_special_tokens=False).ids
            assert post(replica.url + "/tokenize", {"messages": messages}).json["tokens"] == expected, messages
    finally:
        replica.stop()
