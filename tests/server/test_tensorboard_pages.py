"""What passes between TensorBoard and a page, and what does not."""

from __future__ import annotations

import http.client
import json
import re
import socket
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from nbkit.server.tensorboard_pages import no_board_message
from tests.server.curves import (
    ECHO,
    TAGS,
    children,
    open_board,
    store_curves,
)
from tests.server.jupyter import TOKEN, Jupyter, jupyter
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    """Return a server and the path of a process that answers as it is asked."""
    with jupyter(tmp_path_factory.mktemp("echo"), ECHO) as server:
        store_curves(server)
        yield server, open_board(server).body["path"]


def test_tensorboard_gets_no_token_and_no_cookie(echo):
    server, path = echo
    answer = server.request(
        f"{path}echo%20me?a=1&token={TOKEN}&b=%2F&%74oken={TOKEN}",
        headers={"Cookie": "secret=1", "Accept": "text/plain"},
    )

    assert answer.body["path"] == "/echo%20me?a=1&b=%2F"
    assert answer.body["headers"]["Accept"] == "text/plain"
    assert {"authorization", "cookie"}.isdisjoint(
        name.lower() for name in answer.body["headers"]
    )
    assert TOKEN not in json.dumps(answer.body)
    assert TOKEN not in server.log


def test_an_answer_of_many_megabytes_and_every_status_pass_unchanged(echo):
    server, path = echo
    status = Path(f"/proc/{server.process.pid}/status")

    def most_kib() -> int:
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        assert found
        return int(found[1])

    before = most_kib()
    assert len(server.request(f"{path}large").body) == 150_000_000
    assert most_kib() - before < 50_000
    assert server.request(f"{path}teapot")[:2] == (418, "short and stout")
    assert server.request(f"{path}nothing")[:2] == (204, "")
    assert server.request(f"{path}post", b"a=1").body == "a=1"


def test_an_answer_that_breaks_off_is_no_whole_answer(echo):
    server, path = echo
    broken = server.request(f"{path}broken")
    with pytest.raises(http.client.IncompleteRead):
        server.request(f"{path}half")

    assert broken.status == 502
    assert "TensorBoard does not respond" in broken.body
    assert server.log.count("TensorBoard does not respond") == 1
    assert "Traceback" not in server.log
    assert server.request("nbkit/api/status").status == 200


def test_a_page_that_goes_away_leaves_no_word_and_no_request(echo):
    server, path = echo
    (board,) = children(server)
    idle = len(board.net_connections("unix"))
    address = urllib.parse.urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port)) as page:
        head = f"GET /{path}large HTTP/1.1\r\nHost: localhost\r\n"
        page.sendall(f"{head}Authorization: token {TOKEN}\r\n\r\n".encode())
        assert page.recv(1 << 16)

    wait_until(lambda: len(board.net_connections("unix")) == idle, "its end")
    assert "Traceback" not in server.log
    assert server.request(f"{path}teapot").status == 418


def headers(server: Jupyter, path: str) -> http.client.HTTPMessage:
    """Return the headers of an answer."""
    request = urllib.request.Request(
        f"{server.url}{path}", headers={"Authorization": f"token {TOKEN}"}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        request
    ) as answer:
        return answer.headers


def test_page_may_be_framed_and_post_within_its_server_only(echo):
    server, path = echo
    browser = log_in(server)
    url = f"{server.url}{path}experiment/x/data/plugin/timeseries/timeSeries"

    def post(**headers: str) -> int:
        return status_of(browser, url, b"requests=%5B%5D", **headers)

    assert post(Origin=server.url.rstrip("/")) == 200
    assert post(Origin="http://elsewhere.example") in (403, 404)
    assert post(Origin="null") in (403, 404)
    assert post() == 403
    page = headers(server, path)
    policies = page.get_all("Content-Security-Policy", [])
    tried = headers(server, "nbkit/tensorboard/frame")

    assert any("frame-ancestors 'self'" in policy for policy in policies)
    # By this one a page tries whether it may show the other.
    assert tried.get_all("Content-Security-Policy", []) == policies[:1]
    assert tried["X-Frame-Options"] == page["X-Frame-Options"]


def test_what_a_run_may_have_written_runs_no_script_as_the_visitor(echo):
    server, path = echo
    drawing = headers(server, f"{path}drawing")

    assert drawing["Content-Type"] == "image/svg+xml"
    assert "sandbox" in drawing.get_all("Content-Security-Policy", [])


def log_in(server: Jupyter) -> urllib.request.OpenerDirector:
    """Return a browser, as far as cookies go."""
    cookies = urllib.request.HTTPCookieProcessor()
    browser = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)
    browser.open(f"{server.url}login?token={TOKEN}").close()
    return browser


def status_of(
    browser: urllib.request.OpenerDirector,
    url: str,
    data: bytes | None = None,
    **headers: str,
) -> int:
    """Return the status of an answer."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data, names)
    try:
        with browser.open(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_only_pages_of_this_users_server_may_ask_where_a_hub_tells_who_asks(start):
    server = start(
        "--ServerApp.identity_provider_class=tests.server.foreign.ChecksEarly",
        ECHO,
        variables={"PYTHONPATH": str(ROOT)},
        base_url="/user/alice/",
    )
    store_curves(server)
    path = open_board(server).body["path"]
    browser = log_in(server)
    page = f"{server.url}{path}"
    series = f"{page}experiment/x/data/plugin/timeseries/timeSeries"
    origin = server.url.partition("/user")[0]

    def post(referer: str, site: str = "same-origin", **more: str) -> int:
        told = {"Origin": origin, "Referer": referer, "Sec_Fetch_Site": site, **more}
        return status_of(browser, series, b"requests=%5B%5D", **told)

    # A script of the page, whom the hub checks before it tells who asks.
    foreign = "http://elsewhere.example"
    assert status_of(browser, f"{page}{TAGS}", Sec_Fetch_Mode="cors") == 200
    assert post(page, Sec_Fetch_Mode="cors") == 200
    assert post(page, Sec_Fetch_Mode="cors", Origin=foreign) in (403, 404)
    # Another user's server has the same origin.
    assert post(page) == 200
    assert post(f"{origin}/user/bob/lab") == 403
    assert post("") == 403
    assert post(page, site="same-site") == 403


@pytest.mark.parametrize(
    ("key", "whose", "where"),
    [
        ("20200101-000000-a-aaaa", "run_id='20200101-000000-a-aaaa' has", "run's page"),
        (
            "study-20200101-000000-s-aaaa",
            "study_id='20200101-000000-s-aaaa' has",
            "Study",
        ),
        ("all-runs", "The store has", "the button next to Runs"),
    ],
)
def test_where_an_ended_tensorboard_is_opened_depends_on_what_it_shows(
    key, whose, where
):
    words = no_board_message(key, 600)

    begin = f"{whose} no open TensorBoard. A TensorBoard stops after 600 s"
    assert words.startswith(begin)
    assert where in words.partition("Open it")[2]


def test_looking_is_no_activity_and_is_allowed_where_all_is_read_only(start):
    server = start(
        "--NbkitServer.read_only=True",
        "--ServerApp.authorizer_class=tests.server.foreign.OnlyReads",
        ECHO,
        variables={"PYTHONPATH": str(ROOT)},
    )
    store_curves(server)
    before = server.request("api/status").body["last_activity"]

    opened = open_board(server)
    seen = server.request(f"{opened.body['path']}{TAGS}")

    assert (opened.status, seen.status) == (200, 200)
    assert server.request("nbkit/api/runs/x/stop", {}).status == 403
    assert server.request("api/status").body["last_activity"] == before


def test_one_that_has_ended_by_itself_is_started_again(start):
    server = start(ECHO)
    store_curves(server)
    path = open_board(server).body["path"]
    (board,) = children(server)
    board.kill()
    page = f"{path}teapot"
    wait_until(lambda: server.request(page).status == 404, "its end to be seen")

    assert open_board(server).body["started"] is True
    assert server.request(page).status == 418
