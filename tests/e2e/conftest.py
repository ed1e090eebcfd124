import os
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

from fleet import Fleet  # noqa: E402

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


@pytest.fixture(scope="module")
def fleet():
    """Two replicas that register themselves at a cache-aware router."""
    with Fleet(replicas=2) as running:
        yield running


@pytest.fixture(scope="session")
def protos(tmp_path_factory):
    """Python code made from our protos, as a client would make it."""
    out = tmp_path_factory.mktemp("protos")
    names = ["inference", "fleet", "admin"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I", os.path.join(ROOT, "proto"), f"--python_out={out}", f"--grpc_python_out={out}",
                    *[f"kvring/v1/{name}.proto" for name in names]], check=True)
    sys.path.insert(0, str(out))
    from kvring.v1 import admin_pb2, admin_pb2_grpc, inference_pb2, inference_pb2_grpc

    class Protos:
        inference = inference_pb2
        inference_grpc = inference_pb2_grpc
        admin = admin_pb2
        admin_grpc = admin_pb2_grpc

    return Protos
