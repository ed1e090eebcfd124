"""The `openai` Python client works unchanged against the router."""
import openai
import pytest


@pytest.fixture(scope="module")
def client(fleet):
    return openai.OpenAI(base_url=fleet.url + "/v1", api_key="unused", max_retries=0)


QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def test_list_models(client):
    models = client.models.list().data
    assert [m.id for m in models] == ["SmolLM2-135M-Instruct.Q4_1"]


def test_chat_and_stream_give_the_same_text_and_usage(client):
    whole = client.chat.completions.create(model="default", messages=QUESTION, max_tokens=12, temperature=0)
    stream = client.chat.completions.create(model="default", messages=QUESTION, max_tokens=12, temperature=0, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content and text
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["length"]
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 12
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == (whole.usage.prompt_tokens - 1) // 16 * 16  # USG-02: the second time it is warm


def test_completion_echo_logprobs(client):
    done = client.completions.create(model="default", prompt="The capital of France is", max_tokens=3, temperature=0, echo=True, logprobs=2)
    choice = done.choices[0]
    assert choice.text.startswith("The capital of France is Paris")
    assert len(choice.logprobs.tokens) == 5 + 3 and choice.logprobs.token_logprobs[0] is None
    assert all(p <= 0 for p in choice.logprobs.token_logprobs[1:])


def test_completion_stream_and_batch(client):
    pieces = [c.choices[0].text for c in client.completions.create(model="default", prompt="One two three", max_tokens=6, temperature=0, stream=True)]
    whole = client.completions.create(model="default", prompt="One two three", max_tokens=6, temperature=0).choices[0].text
    assert "".join(pieces) == whole
    batch = client.completions.create(model="default", prompt=["One two three", "Hello"], max_tokens=6, temperature=0)  # POL-23 (b)
    assert [c.index for c in batch.choices] == [0, 1]
    assert batch.choices[0].text == whole


def test_token_id_prompt_equals_text(client):
    by_text = client.completions.create(model="default", prompt="The capital of France is", max_tokens=4, temperature=0).choices[0].text
    by_ids = client.completions.create(model="default", prompt=[504, 3575, 282, 4649, 314], max_tokens=4, temperature=0).choices[0].text
    assert by_ids == by_text


def test_chat_logprobs_and_n(client):
    done = client.chat.completions.create(model="default", messages=QUESTION, max_tokens=2, n=3, seed=7, logprobs=True, top_logprobs=3)
    assert [c.index for c in done.choices] == [0, 1, 2]
    first = done.choices[0].logprobs.content[0]
    assert len(first.top_logprobs) == 3 and bytes(first.bytes).decode(errors="replace") == first.token
    again = client.chat.completions.create(model="default", messages=QUESTION, max_tokens=2, n=3, seed=7)
    assert [c.message.content for c in again.choices] == [c.message.content for c in done.choices]  # SMP-07


def test_stop_string(client):
    whole = client.completions.create(model="default", prompt="The capital of France is", max_tokens=12, temperature=0).choices[0].text
    stop = whole[6:9]
    for stream in (False, True):
        kwargs = dict(model="default", prompt="The capital of France is", max_tokens=12, temperature=0, stop=[stop], stream=stream)
        done = client.completions.create(**kwargs)
        if stream:
            chunks = list(done)
            text, reason = "".join(c.choices[0].text for c in chunks), chunks[-1].choices[0].finish_reason
        else:
            text, reason = done.choices[0].text, done.choices[0].finish_reason
        assert text == whole[: whole.index(stop)] and reason == "stop"


def test_errors_are_typed(client):
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="no-such-model", messages=QUESTION)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="default", messages=QUESTION, temperature=9)
    assert wrong.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model="default", messages=QUESTION, max_tokens=100000)
    assert long.value.code == "context_length_exceeded"
