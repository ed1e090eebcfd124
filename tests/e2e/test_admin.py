"""What an operator sees and does at run time."""
from fleet import Http, get, post, until


def series_of(fleet, name):
    return [line for line in get(fleet.url + "/metrics").body.decode().split("\n") if f'replica="{name}"' in line]


def test_OBS_04_series_of_removed_replicas_vanish(fleet):
    url = "http://127.0.0.1:9"
    added = post(fleet.url + "/admin/v1/backends", {"url": url})
    assert added.status == 201
    assert post(fleet.url + "/admin/v1/backends", {"url": url}).status == 200
    name = next(b["id"] for b in get(fleet.url + "/admin/v1/backends").json["backends"] if b["url"] == url)
    until(lambda: series_of(fleet, name), "the new replica has series")
    assert Http("DELETE", fleet.url + "/admin/v1/backends?url=" + url).status in (200, 204)
    assert series_of(fleet, name) == []


def test_drained_replicas_get_nothing_new(fleet):
    drained, other = [r["id"] for r in fleet.router.replicas() if r["state"] == "up"]
    assert post(fleet.url + "/admin/v1/drain", {"replica": drained}).status == 200
    seen = {post(fleet.url + "/v1/completions", {"prompt": f"p{i}", "max_tokens": 1}).headers["x-kvring-replica"] for i in range(12)}
    assert seen == {other}
    assert post(fleet.url + "/admin/v1/drain", {"replica": drained, "undrain": True}).status == 200
    until(lambda: post(fleet.url + "/v1/completions", {"prompt": "again", "max_tokens": 1}).headers["x-kvring-replica"], "an answer")


def test_health_says_what_a_policy_lacks(fleet):
    health = get(fleet.url + "/admin/v1/health").json
    assert health["status"] == "ok" and health["warnings"] == []


def test_the_page_is_one_file(fleet):
    page = get(fleet.url + "/dashboard")
    assert page.status == 200 and "text/html" in page.headers["Content-Type"]
    assert b"src=\"http" not in page.body and b"href=\"http" not in page.body
