"""The page over HTTP, for this machine alone: GET only, three paths, 127.0.0.1, and nothing for a stranger's page.

A page of another site can make a browser send requests here, and a name that resolves to 127.0.0.1 can make them look like its
own. So a request must name this server as its host, nothing may be changed by one, and answers are not for other origins.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from consilience.errors import ConsilienceError
from consilience.explore.page import Page
from consilience.explore.view import Asked, View
from consilience.release import Published

HOST = "127.0.0.1"
LONGEST = 8_000
"""Characters of an address."""


class Server(ThreadingHTTPServer):
    """Bound to this machine; what it serves is made once."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, view: View, port: int = 0) -> None:
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            raise ConsilienceError(
                f"the page must have a port that is free, {port} is not: {error.strerror or error}; name another with --port"
            ) from error
        self.view, self.page = view, Page(view.facts())
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no defect."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "consilience", ""
    timeout = 60

    def do_GET(self) -> None:
        if self._refused():
            return
        path, _, query = self.path.partition("?")
        if path == "/":
            self._send(HTTPStatus.OK, "text/html", self.server.page.live(), self.server.page.policy)
        elif path in ("/answer.json", "/answer.csv"):
            self._answer(path.rpartition(".")[2], query)
        else:
            self._plain(HTTPStatus.NOT_FOUND, "there are a page, answer.json and answer.csv here")

    do_HEAD = do_GET

    def _answer(self, kind: str, query: str) -> None:
        view = self.server.view
        try:
            asked = Asked.of(query)
            if kind == "csv":
                self._send(HTTPStatus.OK, "text/csv", view.csv(asked), name="answer.csv")
                return
            text = json.dumps(view.described(asked), ensure_ascii=False, allow_nan=False)
            self._send(HTTPStatus.OK, "application/json", text)
        except (ConsilienceError, ValueError) as error:
            told = json.dumps({"error": " ".join(str(error).split())}, ensure_ascii=False)
            self._send(HTTPStatus.BAD_REQUEST, "application/json", told)

    # -- who may ask what --------------------------------------------------------------------------

    def _refused(self) -> bool:
        origin = self.headers.get("Origin")
        if self.headers.get_all("Host", []) not in [[host] for host in self.server.hosts]:
            self._plain(
                HTTPStatus.MISDIRECTED_REQUEST, f"this page is at {self.server.address} only"
            )
        elif origin is not None and origin.removeprefix("http://") not in self.server.hosts:
            self._plain(HTTPStatus.FORBIDDEN, "this page answers itself, and no other site's page")
        elif len(self.path) > LONGEST:
            self._plain(
                HTTPStatus.REQUEST_URI_TOO_LONG, f"an address has at most {LONGEST:,} characters"
            )
        else:
            return False
        return True

    def _only_get(self) -> None:
        self.close_connection = True  # whatever was sent along is not read
        self._plain(HTTPStatus.METHOD_NOT_ALLOWED, "only GET: nothing can be changed here")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _only_get

    # -- sending -----------------------------------------------------------------------------------

    def _plain(self, status: HTTPStatus, text: str) -> None:
        self._send(status, "text/plain", text + "\n")

    def _send(
        self,
        status: HTTPStatus,
        kind: str,
        text: str,
        policy: str = "default-src 'none'",
        *,
        name: str = "",
    ) -> None:
        body = text.encode()
        self.send_response(status)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": policy,
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }
        headers |= {"Content-Disposition": f'attachment; filename="{name}"'} if name else {}
        headers |= {"Allow": "GET, HEAD"} if status == HTTPStatus.METHOD_NOT_ALLOWED else {}
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Questions are nobody's business: nothing is logged."""


def serve(
    published: Published, folder: str, port: int = 0, *, ready: Callable[[str], None]
) -> None:
    """Serve the page until it is interrupted. ready: told the address once the first view has been answered."""
    view = View(published, folder)
    with Server(view, port) as server:
        view.described(Asked(by=tuple(view.facts()["start"])))  # kernels are loaded by it
        view.prepare()
        ready(server.address)
        server.serve_forever(poll_interval=0.2)
