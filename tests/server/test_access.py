"""Who may do what: every route of nbkit, found in the application itself."""

from __future__ import annotations

import http.cookiejar
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import websocket

from nbkit.server.rest import ROUTES
from tests.server.jupyter import TOKEN, Jupyter, jupyter
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]

ROUTE_LIST = "routes.json"
METHODS = ("get", "head", "post", "put", "patch", "delete")


def routes() -> list[tuple[str, str]]:
    """Return method and path of everything that nbkit answers."""
    found = []
    for pattern, handler in ROUTES:
        path = pattern.strip("/").replace("([^/]+)", "something")
        path = path.replace("(.*)", "some/page").replace("(runs|studies)", "studies")
        own = [name for name in METHODS if _is_implemented(handler, name)]
        assert own, f"{handler} answers nothing"
        found += [(method.upper(), path) for method in own]
    return found


def _is_implemented(handler: type, name: str) -> bool:
    method = getattr(handler, name)
    return method.__name__ != "_unimplemented_method"


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    """Return a server whose authorizer refuses everything; it lists its routes."""
    folder = tmp_path_factory.mktemp("refusing")
    with jupyter(
        folder,
        "--ServerApp.authorizer_class=tests.server.foreign.RefusesAll",
        extensions=["tests.server.route_list"],
        variables={"ROUTE_LIST": str(folder / ROUTE_LIST), "PYTHONPATH": str(ROOT)},
    ) as server:
        yield server


def test_the_routes_are_all_that_a_server_has_of_nbkit(refusing: Jupyter):
    listed = refusing.folder / ROUTE_LIST
    wait_until(listed.exists, "the routes")

    found = [
        pattern
        for pattern, module in json.loads(listed.read_text())
        if "nbkit" in pattern or module.startswith("nbkit")
    ]
    assert sorted(found) == sorted(f"{pattern}$" for pattern, _ in ROUTES)
    assert ("GET", "nbkit/api/stream") in routes()
    assert ("POST", "nbkit/api/runs/something/stop") in routes()
    assert ("GET", "nbkit/tensorboard/something/some/page") in routes()


@pytest.mark.parametrize(("method", "path"), routes())
@pytest.mark.parametrize("token", [None, "wrong"])
def test_nothing_is_answered_to_a_stranger(
    watched: Jupyter, method: str, path: str, token: str | None
):
    body = {} if method == "POST" else None
    answer = watched.request(path, body, method=method, token=token)

    assert answer.status in (401, 403)
    assert watched.request(path, body, method=method).status not in (401, 403)


def test_a_stranger_gets_no_websocket(watched: Jupyter):
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        watched.view(token=None)

    assert refused.value.status_code == 403


@pytest.mark.parametrize(("method", "path"), routes())
def test_nothing_is_answered_to_a_user_without_the_right(
    refusing: Jupyter, method: str, path: str
):
    body = {} if method == "POST" else None

    assert refusing.request(path, body, method=method).status == 403


def test_a_user_without_the_right_gets_no_websocket(refusing: Jupyter):
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        refusing.view()

    assert refused.value.status_code == 403


def test_a_page_of_another_site_gets_no_websocket(watched: Jupyter):
    opener = _Browser(watched)
    url = watched.url.replace("http", "ws", 1)
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        websocket.create_connection(
            f"{url}nbkit/api/stream",
            origin="http://elsewhere.example",
            cookie=opener.cookies,
        )
    ours = websocket.create_connection(
        f"{url}nbkit/api/stream", origin=watched.url.rstrip("/"), cookie=opener.cookies
    )
    ours.close()

    assert refused.value.status_code == 403


@pytest.mark.parametrize(
    "path", [path for method, path in routes() if method == "POST"]
)
def test_a_cookie_alone_may_change_nothing(watched: Jupyter, path: str):
    browser = _Browser(watched)

    assert browser.post(path) == 403
    assert browser.post(path, xsrf=True) in (404, 409)


class _Browser:
    """Logged in by a cookie, as pages are."""

    def __init__(self, server: Jupyter) -> None:
        self._server = server
        self._jar = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPCookieProcessor(self._jar),
        )
        self._opener.open(f"{server.url}login?token={TOKEN}").close()

    @property
    def cookies(self) -> str:
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in self._jar)

    def post(self, path: str, *, xsrf: bool = False) -> int:
        token = next(cookie.value for cookie in self._jar if cookie.name == "_xsrf")
        request = urllib.request.Request(
            f"{self._server.url}{path}",
            json.dumps({}).encode(),
            {"X-XSRFToken": token or ""} if xsrf else {},
        )
        try:
            with self._opener.open(request) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code
