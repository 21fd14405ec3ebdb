"""The page's server: what it answers is what `consilience answer` says, and what it refuses."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlencode

import pytest

from cli.conftest import run
from consilience.explore.server import LONGEST, Server
from consilience.explore.view import Asked, View
from consilience.release import Published
from explore.cases import HOSTILE, NAMES

QUESTIONS = [
    Asked(),
    Asked(by=("sex",)),
    Asked(by=("sex",), where="income>=20000"),
    Asked("mean(income)", ("sex",), level=0.8),
    Asked("share(sex)", ("sex", "age")),
    Asked("difference(median(income), sex=female, sex=male)"),
    Asked(by=(NAMES[0], NAMES[1])),
    Asked("mean(age)", ("grown up",), where='"grown up"=young|grown'),
]  # fmt: skip


LARGE = ("age", NAMES[0], "income", *(f"column {i:03}" for i in range(6)))


def address(asked: Asked) -> str:
    pairs = [("ask", asked.ask), ("where", asked.where), ("level", str(asked.level))]
    return urlencode([*(p for p in pairs if p[1]), *(("by", name) for name in asked.by)])


def send(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, str]:  # fmt: skip
    line = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    line.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        line.putheader(name.replace("_", "-"), value)
    line.endheaders()
    reply = line.getresponse()
    text = reply.read().decode()
    line.close()
    return reply, text


@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda a: address(a)[:60])
def test_the_numbers_are_those_of_the_command(
    server: Server, published: Published, asked: Asked
) -> None:
    reply, text = send(server, f"/answer.json?{address(asked)}")
    assert reply.status == 200
    said = json.loads(text)
    words = [asked.ask, "--where", asked.where, "--level", asked.level]
    by = ",".join('"' + n.replace('"', '""') + '"' for n in asked.by)
    done = run("answer", published.path, *words, "--by", by, "--json", "-q")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    name = said["measure"]
    for key, column in (("value", name), ("stderr", "stderr"), ("low", "low"), ("high", "high")):
        assert said[key] == [row[column] for row in told["rows"]]
    assert said["labels"] == [[row[n] for n in asked.by] for row in told["rows"]]
    assert (said["verdict"], said["basis"], said["notes"]) == (told["trust"], told["rests_on"], told["notes"])  # fmt: skip
    reply, text = send(server, f"/answer.csv?{address(asked)}")
    csv = run("answer", published.path, *words, "--by", by, "--csv", "-q")
    assert text == csv.stdout
    assert "attachment" in reply.headers["Content-Disposition"]


@pytest.mark.parametrize(
    "query, words",
    [
        ("by=nobody", "the column must be declared in the schema, got 'nobody'"),
        ("ask=mean(sex)", "must hold numbers"),
        ("level=2", "the level must be a number between 0 and 1, got '2'"),
        ("level=x", "the level must be a number between 0 and 1, got 'x'"),
        ("file=/etc/passwd", "an address must ask by ask, by, where and level, got 'file'"),
        ("&".join("by=age" for _ in range(60)), "Max number of fields exceeded"),
        (urlencode([("by", n) for n in LARGE]), "a page must show at most 20,000 numbers"),
    ],
)  # fmt: skip
def test_a_question_that_cannot_be_asked_is_one_line(server: Server, query: str, words: str) -> None:  # fmt: skip
    reply, text = send(server, f"/answer.json?{query}")
    assert reply.status == 400
    assert words in json.loads(text)["error"]


@pytest.mark.parametrize("host", ["example.org", "127.0.0.1", "localhost:1", "evil.test:{port}", ""])  # fmt: skip
def test_another_host_is_refused(server: Server, host: str) -> None:
    """A stranger's name may resolve to this machine; then its page would be of the same origin as ours."""
    reply, text = send(server, "/", Host=host.format(port=server.server_port))
    assert reply.status == 421
    assert "facts" not in text


def test_two_hosts_or_none_are_refused(server: Server) -> None:
    good = f"Host: 127.0.0.1:{server.server_port}\r\n"
    for heads in ("", good + "Host: example.org\r\n"):
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as line:
            line.sendall(f"GET / HTTP/1.1\r\n{heads}Connection: close\r\n\r\n".encode())
            assert b" 421 " in line.recv(100)


def test_another_site_is_refused(server: Server) -> None:
    assert send(server, "/answer.json", Origin="https://example.org")[0].status == 403
    assert send(server, "/answer.json", Origin=server.address.rstrip("/"))[0].status == 200


@pytest.mark.parametrize("path", [
    "/release.json", "/../../etc/passwd", "/..%2f..%2fetc/passwd", "//etc/passwd", "/model.npz", "/answer.json/..",
    "/tables/0001-age-sex.csv",
])  # fmt: skip
def test_nothing_but_the_page_and_answers_can_be_read(server: Server, path: str) -> None:
    reply, text = send(server, path)
    assert reply.status == 404
    assert text == "there are a page, answer.json and answer.csv here\n"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_only_get(server: Server, method: str) -> None:
    reply, _ = send(server, "/answer.json", method)
    assert reply.status in (405, 501)
    assert method == "TRACE" or reply.headers["Allow"] == "GET, HEAD"


def test_a_long_address_is_refused(server: Server) -> None:
    assert send(server, "/answer.json?where=" + LONGEST * "a")[0].status == 414


def test_it_is_bound_to_this_machine_and_forbids_everything_else(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    reply, text = send(server, "/")
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert reply.headers["X-Frame-Options"] == "DENY"
    head, nothing = send(server, "/", "HEAD")
    assert (head.status, nothing) == (200, "")
    for scheme in ("http://", "https://", "//cdn"):
        assert scheme not in text.replace("http://www.w3.org/2000/svg", "")
    assert HOSTILE[0] not in text.partition('id="facts"')[2].partition("</script>")[0]


def test_a_port_that_is_taken_is_one_line(server: Server, published: Published) -> None:
    done = run("explore", published.path, "--port", server.server_port)
    assert done.exit_code == 2
    assert "the page must have a port that is free" in done.stderr


def test_the_form_lists_what_can_be_asked(published: Published) -> None:
    facts = View(published, "release/").facts()
    columns = {c["name"]: c for c in facts["columns"]}
    assert columns["age"]["ordered"]
    assert columns["income"]["numbers"]
    assert not columns["sex"]["numbers"]
    assert "epsilon 1, delta 1e-6, replace-one" in facts["promise"]
    assert facts["mark"].startswith("NOT PRIVATE")


def test_export_refuses_a_folder_that_exists(published: Published, tmp_path: Path) -> None:
    done = run("explore", published.path, "--export", tmp_path)
    assert done.exit_code == 2
    assert "must be a new folder" in done.stderr


def test_the_command_serves_until_it_is_interrupted(published: Published) -> None:
    program = [str(Path(sys.executable).parent / "consilience"), "explore", str(published.path)]
    with subprocess.Popen([*program, "--json"], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        said = "".join(iter(running.stdout.readline, "}\n")) + "}"
        port = int(json.loads(said)["page"].rstrip("/").rpartition(":")[2])
        line = HTTPConnection("127.0.0.1", port, timeout=30)
        line.request("GET", "/answer.json?by=sex")
        assert json.loads(line.getresponse().read())["labels"] == [["female"], ["male"]]
        line.close()
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) == 0
