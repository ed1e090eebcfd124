"""The router's configuration file: checked, followed while it runs, and replaced without a gap."""
import signal
import subprocess
import threading

from fleet import BIN, Fleet, Process, Replica, free_ports, get, post, until


def chat(url, key=None, model="default", **more):
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    return post(url + "/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, **more},
                headers=headers)


class ConfiguredRouter(Process):
    def __init__(self, path, *more):
        super().__init__("router", "--config", str(path), "--drain-seconds", "20", *more)


def config_text(port, backends, keys="", more=""):
    lines = "".join(f"  - url: {b}\n" for b in backends)
    return f"listen: 127.0.0.1:{port}\n{more}backends:\n{lines}{keys}"


def ready(url):
    def answers():
        try:
            return get(url + "/readyz").status == 200
        except OSError:
            return False

    until(answers, f"{url}/readyz")


def test_check_names_the_field(tmp_path):
    for text, named in [("api_keys:\n  - key: a\n", "api_keys[0].name"), ("api_keys:\n  - name: a\n", "api_keys[0]"),
                        ("api_keys:\n  - name: a\n    key_file: /nope\n", "api_keys[0].key_file"), ("aliases:\n  - name: a\n", "aliases[0].model"),
                        ("limits:\n  retry_share: -1\n", "limits.retry_share"), ("backends:\n  - url: ftp://x\n", "backends[0].url"),
                        ("limits:\n  queue: 3\n", "limits.queue"), ("polcy: x\n", "polcy"), ("decision_log_share: 2\n", "decision_log_share"),
                        ("backends:\n  - url: http://a:1\n    weight: .nan\n", "backends[0].weight"), ("? [a]\n: 1\n", "key that is no name"),
                        ("grpc_tls: {key_file: /nope}\n", "grpc_tls.cert_file"), ("grpc_tls: {cert_file: /nope, key_file: /nope}\n", "grpc_tls.cert_file"),
                        ("backends:\n  - url: http://a:1\n    tls: {}\n", "backends[0].tls"),
                        ("backends:\n  - url: grpc://a:1\n    tls: {cert_file: /nope}\n", "backends[0].tls")]:
        path = tmp_path / "bad.yaml"
        path.write_text(text)
        run = subprocess.run([BIN, "router", "--config", str(path), "--check"], capture_output=True, text=True)
        assert run.returncode == 2 and named in run.stderr, (text, run.stderr)
    good = tmp_path / "good.yaml"
    (tmp_path / "key").write_text("secret\n")
    good.write_text(f"listen: 127.0.0.1:0\napi_keys:\n  - name: a\n    key_file: {tmp_path}/key\n    tokens_per_minute: 10\n")
    assert subprocess.run([BIN, "router", "--config", str(good), "--check"], capture_output=True).returncode == 0


def test_changes_are_followed_without_dropping_a_stream(tmp_path):
    """SEC-06: keys of both sides come from the file; an old one ends at once."""
    with Fleet(replicas=2, wire="http", policy="round-robin") as fleet:
        urls = [r.url for r in fleet.replicas]
        port = free_ports(1)[0]
        url = f"http://127.0.0.1:{port}"
        path = tmp_path / "router.yaml"
        path.write_text(config_text(port, urls[:1]))
        router = ConfiguredRouter(path)
        try:
            ready(url)
            assert chat(url).status == 200
            stream = threading.Thread(target=lambda: results.append(chat(url, stream=True, max_tokens=200, ignore_eos=True)))
            results = []
            stream.start()
            until(lambda: any(r["in_flight"] for r in get(url + "/admin/v1/replicas").json["replicas"]), "the stream runs")
            path.write_text(config_text(port, urls[1:], keys="api_keys:\n  - name: ops\n    key: K1\naliases:\n  - name: nick\n    model: "
                                        + get(url + "/v1/models").json["data"][0]["id"] + "\n"))
            router.process.send_signal(signal.SIGHUP)
            until(lambda: chat(url).status == 401, "a key is wanted")
            until(lambda: chat(url, key="K1", model="nick").status == 200, "the new backend serves, under the alias too")
            backends = get(url + "/admin/v1/backends", headers={"Authorization": "Bearer K1"}).json["backends"]
            assert [b["url"] for b in backends] == urls[1:]
            stream.join()
            assert results[0].status == 200 and results[0].body.endswith(b"data: [DONE]\n\n")
            path.write_text("polcy: nope\n")
            until(lambda: "configuration not applied" in router.output(), "a wrong file is said")
            assert chat(url, key="K1").status == 200
            assert "K1" not in router.output()
        finally:
            router.stop()


def test_restart_without_a_gap(tmp_path):
    """Old and new share the port; requests go on while the old one drains, and none is refused."""
    with Fleet(replicas=1, wire="http") as fleet:
        port = free_ports(1)[0]
        url = f"http://127.0.0.1:{port}"
        path = tmp_path / "router.yaml"
        path.write_text(config_text(port, [fleet.replicas[0].url], more="share_port: true\nthreads: 1\n"))
        old = ConfiguredRouter(path)
        new = None
        try:
            ready(url)
            answers, stop = [], threading.Event()

            def ask():
                while not stop.is_set():
                    try:
                        answers.append(chat(url, max_tokens=2).status)
                    except OSError as error:  # refused or cut: a gap
                        answers.append(repr(error))

            askers = [threading.Thread(target=ask) for _ in range(4)]
            for asker in askers:
                asker.start()
            until(lambda: len(answers) > 8, "requests are answered")
            new = ConfiguredRouter(path)
            until(lambda: "serving" in new.output(), "the new one listens")
            old.process.send_signal(signal.SIGTERM)
            assert old.process.wait(timeout=30) == 0
            seen = len(answers)
            until(lambda: len(answers) > seen + 8, "the new one answers")
            stop.set()
            for asker in askers:
                asker.join()
            assert set(answers) == {200}
        finally:
            stop.set()
            old.stop()
            if new:
                new.stop()


def test_keys_hold_for_registration_and_commands(tmp_path):
    """SEC-06: with keys, a replica registers with one, and so do the client commands."""
    http, grpc = free_ports(2)
    path = tmp_path / "router.yaml"
    path.write_text(f"listen: 127.0.0.1:{http}\ngrpc_listen: 127.0.0.1:{grpc}\napi_keys:\n  - name: ops\n    key: K1\n")
    url = f"http://127.0.0.1:{http}"
    router = ConfiguredRouter(path)
    stranger = Replica(*free_ports(2), f"127.0.0.1:{grpc}")
    member = Replica(*free_ports(2), f"127.0.0.1:{grpc}", "--router-key", "K1")
    try:
        stranger.wait_ready()
        member.wait_ready()
        until(lambda: "registered" in member.output(), "the replica with the key registers")
        until(lambda: "A valid API key is needed" in stranger.output(), "the other is refused, and says so")
        urls = [r["url"] for r in get(url + "/admin/v1/replicas", headers={"Authorization": "Bearer K1"}).json["replicas"]]
        assert urls == [f"grpc://{member.grpc}"]
        command = [BIN, "stats", "--router", f"127.0.0.1:{grpc}", "--json"]
        assert subprocess.run(command, capture_output=True).returncode == 1
        assert subprocess.run([*command, "--api-key", "K1"], capture_output=True).returncode == 0
    finally:
        for process in (stranger, member, router):
            process.stop()


def test_admin_on_a_port_of_its_own(tmp_path):
    http, admin = free_ports(2)
    path = tmp_path / "router.yaml"
    path.write_text(f"listen: 127.0.0.1:{http}\nadmin:\n  listen: 127.0.0.1:{admin}\n")
    router = ConfiguredRouter(path)
    try:
        until(lambda: "serving" in router.output(), "it serves")
        assert get(f"http://127.0.0.1:{http}/admin/v1/policy").status == 404
        assert get(f"http://127.0.0.1:{admin}/admin/v1/policy").json["policy"] == "cache-aware"
        assert get(f"http://127.0.0.1:{admin}/nothing").status == 404
        path.write_text(path.read_text() + "api_keys:\n  - name: ops\n    key: K1\n")
        until(lambda: get(f"http://127.0.0.1:{admin}/dashboard").status == 401, "a key is wanted there too")
        assert get(f"http://127.0.0.1:{admin}/dashboard", headers={"Authorization": "Bearer K1"}).status == 200
    finally:
        router.stop()
