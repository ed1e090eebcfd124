"""The replica's prefix cache through both wires: usage, what concurrent requests share, retention, priority, reset."""
import json
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from fleet import Fleet, get, post

WORDS = "one two three four five six seven eight nine ten "


@pytest.fixture(scope="module")
def fleet():
    with Fleet(replicas=1) as running:
        yield running


@pytest.fixture(params=["router", "replica"])
def target(fleet, request):
    """(HTTP address, gRPC address) of the router, and of the replica itself."""
    replica = fleet.replicas[0]
    return (fleet.url, fleet.grpc) if request.param == "router" else (replica.url, replica.grpc)


def own(url):
    """How a prompt of this target begins: not even its first block is the other target's."""
    return url.rsplit(":", 1)[-1]


def plain_usage(url, body):
    return post(url + "/v1/completions", body).json["usage"]


def streamed_usage(url, body):
    lines = post(url + "/v1/completions", {**body, "stream": True, "stream_options": {"include_usage": True}}).body.split(b"\n\n")
    chunks = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
    return [chunk["usage"] for chunk in chunks if chunk.get("usage")][-1]


def grpc_usage(address, protos, **fields):
    with grpc.insecure_channel(address) as channel:
        usage = list(protos.inference_grpc.InferenceStub(channel).Generate(protos.inference.GenerateRequest(**fields)))[-1].usage
    return {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens, "prompt_tokens_details": {"cached_tokens": usage.cached_tokens}}


def test_USG_02_one_usage_for_all_ways_to_ask(target, protos):
    url, address = target
    prompt = f"{own(url)} " + WORDS * 12
    body = {"prompt": prompt, "max_tokens": 4, "temperature": 0}
    cold = plain_usage(url, body)
    assert cold["prompt_tokens_details"]["cached_tokens"] == 0
    warm = plain_usage(url, body)
    assert warm["prompt_tokens_details"]["cached_tokens"] == (warm["prompt_tokens"] - 1) // 16 * 16 > 0
    assert streamed_usage(url, body) == warm
    assert grpc_usage(address, protos, text=prompt, sampling=protos.inference.Sampling(max_tokens=4, temperature=0)) == warm
    wrapped = protos.inference.OpenAiBody(route="/v1/completions", body=json.dumps(body).encode())
    assert grpc_usage(address, protos, openai_body=wrapped) == warm


def test_USG_05_choices_count_the_prompt_once(target):
    url, _ = target
    body = {"prompt": f"{own(url)} n " + WORDS * 3, "max_tokens": 5, "n": 4, "seed": 1, "ignore_eos": True}
    cold, warm = plain_usage(url, body), plain_usage(url, body)
    assert cold["prompt_tokens_details"]["cached_tokens"] == 0 and cold["completion_tokens"] == 20
    assert warm["prompt_tokens"] == cold["prompt_tokens"] and warm["completion_tokens"] == 20
    assert warm["prompt_tokens_details"]["cached_tokens"] == (cold["prompt_tokens"] - 1) // 16 * 16


def test_equal_prompts_at_once_are_computed_once(target):
    url, _ = target
    body = {"prompt": f"{own(url)} at once " + WORDS * 40, "max_tokens": 2, "temperature": 0}
    with ThreadPoolExecutor(4) as pool:
        usages = list(pool.map(lambda _: plain_usage(url, body), range(4)))
    cached = sorted(u["prompt_tokens_details"]["cached_tokens"] for u in usages)
    whole = (usages[0]["prompt_tokens"] - 1) // 16 * 16
    assert cached == [0, whole, whole, whole]


def test_SMP_10_cut_only_when_asked_and_said_so(target):
    url, _ = target
    body = {"prompt": list(range(1000, 10_000)), "max_tokens": 1}
    refused = post(url + "/v1/completions", body)
    assert refused.status == 400 and refused.json["error"]["code"] == "context_length_exceeded"
    body["truncate_prompt_tokens"] = 20
    for usage in plain_usage(url, body), streamed_usage(url, body):
        assert usage["prompt_tokens"] == 20
        assert usage["prompt_tokens_details"]["truncated"] is True and usage["prompt_tokens_details"]["kept_span"] == [8980, 9000]


def test_reset_over_http_and_grpc(fleet, protos):
    replica = fleet.replicas[0]
    body = {"prompt": "reset " + WORDS * 8, "max_tokens": 1, "cache_retention": {"class": "pinned", "ttl_s": 600}}

    def cached():
        return plain_usage(replica.url, body)["prompt_tokens_details"]["cached_tokens"]

    cached()
    whole = cached()
    assert whole > 0
    answer = post(replica.url + "/admin/v1/cache/reset", b"")
    assert answer.status == 200 and answer.json["dropped_tokens"] >= whole
    assert cached() == 0 and cached() == whole
    with grpc.insecure_channel(replica.grpc) as channel:
        dropped = protos.admin_grpc.ReplicaAdminStub(channel).ResetCache(protos.admin.ResetCacheRequest()).dropped_tokens
    assert dropped >= whole and cached() == 0
    assert get(replica.url + "/admin/v1/cache/reset").status == 404


@pytest.mark.parametrize("field, value", [
    ("cache_retention.ttl_s", {"cache_retention": {"class": "high"}}),
    ("cache_retention.class", {"cache_retention": {"class": "best"}}),
    ("priority", {"priority": "high"}),
])
def test_wrong_fields_are_named(target, field, value):
    answer = post(target[0] + "/v1/completions", {"prompt": "x", "max_tokens": 1, **value})
    assert answer.status == 400 and answer.json["error"]["param"] == field


def test_wrong_retention_over_grpc(target, protos):
    with grpc.insecure_channel(target[1]) as channel, pytest.raises(grpc.RpcError) as error:
        retention = protos.inference.CacheRetention(ttl_seconds=5)
        list(protos.inference_grpc.InferenceStub(channel).Generate(protos.inference.GenerateRequest(text="x", cache_retention=retention)))
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "cache_retention.ttl_s" in error.value.details()


def test_metrics_tell_the_pool_and_each_hit_once(fleet):
    replica = fleet.replicas[0]

    def series():
        lines = get(replica.url + "/metrics").body.decode().splitlines()
        return {line.split(" ")[0]: float(line.split(" ")[1]) for line in lines if line.startswith("kvring_replica_") and "{" not in line}

    post(replica.url + "/admin/v1/cache/reset", b"")
    before = series()
    body = {"prompt": "metrics " + WORDS * 8, "max_tokens": 1}
    prompt = plain_usage(replica.url, body)["prompt_tokens"]
    plain_usage(replica.url, body)
    post(replica.url + "/admin/v1/cache/reset", b"")  # answered after the metrics of the step that ended the request
    after = series()
    assert after["kvring_replica_prefix_query_tokens_total"] - before["kvring_replica_prefix_query_tokens_total"] == 2 * prompt
    assert after["kvring_replica_prefix_hit_tokens_total"] - before["kvring_replica_prefix_hit_tokens_total"] == (prompt - 1) // 16 * 16
    assert after["kvring_replica_prefix_full_hits_total"] - before["kvring_replica_prefix_full_hits_total"] == 1
    assert after["kvring_replica_kv_used_tokens"] == 0
