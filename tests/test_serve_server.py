"""The server process: connections without room, the files of the page, ports, signals."""

import json
import os
import signal
import socket
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from patience import PATIENCE, until
from serve_parts import serving
from test_serve_life import request, total, waiting, without_room

from regard.errors import RunError
from regard.runs.included import find_run
from regard.serve.access import Access
from regard.serve.app import FOLDERS
from regard.serve.limits import Limits
from regard.serve.server import Server, serve


def test_a_new_connection_without_room_is_refused_however_its_request_comes() -> None:
    """Whole, in parts, late, or not at all; each refusal is counted once."""
    with without_room() as (server, child, _):
        before = total(server, "regard_refused_total")
        whole = request("ba").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        for cuts in ([], [10], [len(whole) - 5], [0], [1, 60, 120]):
            with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as line:
                for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
                    line.sendall(whole[start:end])
                    assert end == len(whole) or server.client.get("/health").status_code  # a turn of the loop passes
                found = b"".join(iter(lambda: line.recv(1 << 16), b""))
                head, _, body = found.partition(b"\r\n\r\n")
                assert (head[:13], json.loads(body).keys()) == (b"HTTP/1.1 429 ", {"error"}), cuts
        assert total(server, "regard_refused_total") == before + 5
        for sent in (b"", whole[:50], whole):  # clients that leave without a word
            with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as line:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                line.sendall(sent)
        os.kill(child, signal.SIGCONT)
        until(lambda: waiting(server) == 0)
        assert server.translate("ba da")["translatedText"] == "da ba"


def test_requests_whose_bodies_have_not_come_take_no_room() -> None:
    with serving(limits={"queue": 8}) as server, ExitStack() as stack:
        os.kill(server.process.pid, signal.SIGSTOP)
        for cut in [-5] * 100 + [None]:
            line = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE))
            line.sendall(request("ba da")[:cut])
        os.kill(server.process.pid, signal.SIGCONT)
        assert line.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


def test_a_file_of_the_page_comes_compressed_and_is_not_sent_twice() -> None:
    with serving() as server:
        get = server.client.get
        plain, packed = (get("/page/app.js", headers={"Accept-Encoding": coding}) for coding in ("identity", "gzip"))
        assert plain.content == packed.content == (FOLDERS[0] / "app.js").read_bytes()
        assert (plain.headers.get("content-encoding"), packed.headers["content-encoding"]) == (None, "gzip")
        assert int(packed.headers["content-length"]) < len(plain.content) / 2
        assert plain.headers["content-type"] == "text/javascript; charset=utf-8"
        assert plain.headers["cache-control"] == "no-cache", "it is asked for again, so that an update is seen at once"
        again = get("/page/app.js", headers={"If-None-Match": f'"other", W/{plain.headers["etag"]}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", plain.headers["etag"])
        assert get("/page/dom.js").content == (FOLDERS[1] / "dom.js").read_bytes(), "of the views"
        for name in ("none.js", "..%2fapp.py", "%2e%2e/app.py", "", "app.js/x"):
            assert get(f"/page/{name}").status_code == 404, name


def test_models_are_served_by_their_names(monkeypatch) -> None:
    class StopError(Exception):
        pass

    def stop(runs: list[str], *rest: object) -> None:
        raise StopError(runs)

    monkeypatch.setattr("regard.serve.server._bind", lambda host, port: SimpleNamespace(getsockname=lambda: ("", 0)))
    monkeypatch.setattr("regard.serve.server.Service", stop)
    with pytest.raises(RunError, match="Did you mean 'en-fr/bahdanau'"):
        serve(["en-fr/bahdanu"])
    with pytest.raises(StopError) as found:
        serve(["fr-en", FOLDERS[0]])
    assert found.value.args == ([str(find_run("fr-en")), str(FOLDERS[0])],)


def test_a_port_in_use_is_refused_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(RunError, match=rf"^Port {port} is in use by another program; choose another with --port"):
            serve([FOLDERS[0]], port=port)
    with pytest.raises(
        RunError, match=r"^The server cannot listen there: [^\[]*; choose another --host or --port than"
    ):
        serve([FOLDERS[0]], access=Access("192.0.2.1"))


def test_a_second_signal_changes_nothing_unless_it_is_an_interrupt() -> None:
    middleware: Any = SimpleNamespace(service=SimpleNamespace(stopping=False), limits=Limits())
    server = Server(middleware)
    for _ in range(2):
        server.handle_exit(signal.SIGTERM, None)
        assert (server.service.stopping, server.should_exit) == (True, False)
    server.handle_exit(signal.SIGINT, None)
    assert server.should_exit
    assert server.force_exit
