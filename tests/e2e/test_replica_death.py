"""A replica is killed in mid-run: no request without a first byte fails, its conversations go on elsewhere, and when it is back it is used
again as the empty thing it is."""
import signal
import threading

import pytest

from fleet import Conversation, Fleet, chat_body, get, post, until

SYSTEM = "You are a terse assistant for a hardware shop. Answer in one sentence. " * 6


@pytest.mark.parametrize("wire", ["register", "http"])
def test_kill_and_restart(wire):
    with Fleet(replicas=3, wire=wire) as fleet:
        conversations = [Conversation(fleet.url, f"s{i}", SYSTEM + str(i)) for i in range(9)]
        for conversation in conversations:
            conversation.ask("First question?")
        victim_name = conversations[0].turns[0]["replica"]
        views = {r["id"]: r for r in fleet.router.replicas()}
        index = next(i for i, r in enumerate(fleet.replicas) if r.grpc in views[victim_name]["url"] or r.url == views[victim_name]["url"])
        old_epoch = views[victim_name]["epoch"]

        errors = []
        stop = threading.Event()

        def load(i):
            while not stop.is_set():
                answer = post(fleet.url + "/v1/chat/completions", chat_body([{"role": "user", "content": f"{SYSTEM} {i}"}], max_tokens=2))
                if answer.status != 200:
                    errors.append((answer.status, answer.body))

        threads = [threading.Thread(target=load, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        fleet.replicas[index].kill()
        for conversation in conversations:
            conversation.ask("Second question?")
        stop.set()
        for thread in threads:
            thread.join()
        assert errors == []
        assert all(c.turns[1]["replica"] != victim_name for c in conversations)

        fleet.restart(index)
        back = lambda: next((r for r in fleet.router.replicas() if r["url"] == views[victim_name]["url"] and r["state"] == "up"), None)
        view = until(back, "the restarted replica is up")
        if wire == "register":
            assert view["epoch"] != old_epoch
            assert view["indexed_tokens"] == 0 or view["requests"] > 0
        # Used again: distinct prompts reach it, and none is promised anything that its new life does not hold.
        def served():
            fresh = Conversation(fleet.url, None, SYSTEM + f"again {len(seen)}")
            fresh.ask("Hello?")
            seen.append(fresh.turns[0]["replica"])
            return view["id"] in seen

        seen = []
        until(served, "the restarted replica serves")
        conversations[0].ask("Third question?")
        assert conversations[0].turns[2]["predicted"] <= conversations[0].turns[2]["cached"] + 16


def test_mid_stream_death_is_told_in_band():  # PRX-07, PRX-24
    import http.client
    import json

    with Fleet(replicas=2) as fleet:
        host = fleet.url.removeprefix("http://")
        connection = http.client.HTTPConnection(host)
        body = json.dumps(chat_body([{"role": "user", "content": "Tell a long story."}], max_tokens=4000, stream=True, ignore_eos=True))
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        first = answer.readline()
        assert first.startswith(b"data: ")
        name = answer.headers["x-kvring-replica"]
        url = next(r["url"] for r in fleet.router.replicas() if r["id"] == name)
        next(r for r in fleet.replicas if r.grpc in url or r.url == url).kill()
        with pytest.raises(http.client.IncompleteRead) as cut:  # never a clean last chunk
            answer.read()
        rest = cut.value.partial
        events = [line[6:] for line in rest.split(b"\n") if line.startswith(b"data: ")]
        assert b"[DONE]" not in rest
        error = json.loads(events[-1])["error"]
        assert error["type"] and error["message"] and "Traceback" not in error["message"]
        assert get(fleet.url + "/readyz").status in (200, 503)


def test_frozen_replica_is_up_again_once_it_goes_on():  # HLT-03
    with Fleet(replicas=2, wire="http") as fleet:
        frozen = fleet.replicas[0]
        state = lambda: next(r["state"] for r in fleet.router.replicas() if r["url"] == frozen.url)  # noqa: E731
        frozen.process.send_signal(signal.SIGSTOP)
        until(lambda: state() == "down", "the frozen replica is down")
        frozen.process.send_signal(signal.SIGCONT)
        until(lambda: state() == "up", "it is up again", 20)
