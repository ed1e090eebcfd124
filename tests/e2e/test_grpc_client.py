"""A Python client made from the protos works against the router: all inputs, errors, cancel, deadline, health, reflection."""
import json
import threading

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from fleet import get, post, until


@pytest.fixture(scope="module")
def channel(fleet):
    with grpc.insecure_channel(fleet.grpc, options=[("grpc.max_receive_message_length", 64 << 20)]) as open_channel:
        yield open_channel


@pytest.fixture(scope="module")
def stub(channel, protos):
    return protos.inference_grpc.InferenceStub(channel)


def run(call):
    events = list(call)
    text = "".join(e.delta.text for e in events if e.HasField("delta") and e.delta.index == 0)
    return events, text


def greedy(protos, tokens):
    return protos.inference.Sampling(temperature=0, max_tokens=tokens)


def test_four_inputs_agree(stub, protos, fleet):
    pb = protos.inference
    _, by_text = run(stub.Generate(pb.GenerateRequest(text="The capital of France is", sampling=greedy(protos, 6))))
    _, by_ids = run(stub.Generate(pb.GenerateRequest(token_ids=pb.TokenIds(ids=[504, 3575, 282, 4649, 314]), sampling=greedy(protos, 6))))
    body = json.dumps({"prompt": "The capital of France is", "max_tokens": 6, "temperature": 0}).encode()
    _, by_body = run(stub.Generate(pb.GenerateRequest(openai_body=pb.OpenAiBody(route="/v1/completions", body=body))))
    assert by_text == by_ids == by_body == " Paris" + by_text[6:]
    messages = pb.Messages(messages=[pb.Message(role="user", content="Hello there")])
    _, chat = run(stub.Generate(pb.GenerateRequest(messages=messages, sampling=greedy(protos, 6))))
    http = post(fleet.url + "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello there"}], "max_tokens": 6, "temperature": 0})
    assert chat == http.json["choices"][0]["message"]["content"]


def test_order_of_events_and_usage(stub, protos):
    request = protos.inference.GenerateRequest(text="word " * 60, sampling=greedy(protos, 4), session_id="s1")
    for expect_cached in (False, True):
        call = stub.Generate(request)
        events, _ = run(call)
        kinds = [e.WhichOneof("event") for e in events]
        assert kinds[0] == "admitted" and kinds[-1] == "usage" and set(kinds[1:-1]) == {"delta"}
        admitted, usage = events[0].admitted, events[-1].usage
        assert admitted.prompt_tokens == usage.prompt_tokens and admitted.cached_tokens == usage.cached_tokens
        assert usage.cached_tokens == ((usage.prompt_tokens - 1) // 16 * 16 if expect_cached else 0)
        assert len(admitted.block_end_bytes) == admitted.prompt_tokens // 16
        assert [e.delta.finish_reason for e in events[1:-1] if e.delta.finish_reason] == ["length"]
        metadata = dict(call.initial_metadata())
        assert metadata["x-kvring-replica"].startswith("r-") and metadata["x-request-id"]


def test_errors(stub, protos):
    pb = protos.inference
    wrong = [
        (pb.GenerateRequest(), grpc.StatusCode.INVALID_ARGUMENT, "openai_body"),
        (pb.GenerateRequest(text="x", model="no-such-model"), grpc.StatusCode.NOT_FOUND, "no-such-model"),
        (pb.GenerateRequest(text="x", sampling=pb.Sampling(temperature=9)), grpc.StatusCode.INVALID_ARGUMENT, "temperature"),
        (pb.GenerateRequest(text="x", sampling=pb.Sampling(max_tokens=0)), grpc.StatusCode.INVALID_ARGUMENT, "max_tokens"),
        (pb.GenerateRequest(text="x", sampling=pb.Sampling(max_tokens=100000)), grpc.StatusCode.INVALID_ARGUMENT, "8192"),
        (pb.GenerateRequest(token_ids=pb.TokenIds(ids=[1, 999999])), grpc.StatusCode.INVALID_ARGUMENT, "999999"),
    ]
    for request, code, word in wrong:
        with pytest.raises(grpc.RpcError) as error:
            list(stub.Generate(request))
        assert error.value.code() == code, request
        assert word in error.value.details()


def running(fleet):
    return sum(r["in_flight"] for r in fleet.router.replicas())


def test_cancel_reaches_the_engine(stub, protos, fleet):  # GRP-08 (a)
    call = stub.Generate(protos.inference.GenerateRequest(text="Once upon a time", sampling=protos.inference.Sampling(ignore_eos=True, max_tokens=4000)))
    for _ in range(4):
        next(call)
    call.cancel()
    until(lambda: running(fleet) == 0, "in-flight is zero after a cancel")
    used = lambda: sum(int(float(line.split()[1])) for r in fleet.replicas for line in get(r.url + "/metrics").body.decode().split("\n")
                       if line.startswith("kvring_replica_cancelled_total"))
    until(lambda: used() >= 1, "the engine has cancelled")


def test_deadline(stub, protos, fleet):  # GRP-08 (b)
    request = protos.inference.GenerateRequest(text="Once upon a time", sampling=protos.inference.Sampling(ignore_eos=True, max_tokens=8000))
    with pytest.raises(grpc.RpcError) as error:
        list(stub.Generate(request, timeout=0.5))
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    until(lambda: running(fleet) == 0, "in-flight is zero after a deadline")


def test_concurrent_streams(stub, protos):
    texts = {}

    def one(i):
        _, texts[i] = run(stub.Generate(protos.inference.GenerateRequest(text=f"Number {i % 4} is", sampling=greedy(protos, 8))))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 16
    for i in range(4, 16):
        assert texts[i] == texts[i % 4]


def test_list_models_admin_health_reflection(channel, stub, protos):
    models = stub.ListModels(protos.inference.ListModelsRequest()).models
    assert models[0].id == "SmolLM2-135M-Instruct.Q4_1"
    admin = protos.admin_grpc.AdminStub(channel)
    assert len(admin.ListReplicas(protos.admin.ListReplicasRequest()).replicas) == 2
    assert admin.Stats(protos.admin.StatsRequest()).requests > 0
    health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    assert "kvring.v1.Inference" in ProtoReflectionDescriptorDatabase(channel).get_services()
