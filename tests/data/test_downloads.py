"""Downloads from servers that lie, stop or do not end: a ceiling, one line, and what is kept."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from normscope.data import archives
from normscope.data.archives import downloaded
from normscope.data.publishers import Archive

CONTENT = bytes(range(256)) * 1200  # 300 kB
SIZE = len(CONTENT)


class Server(ThreadingHTTPServer):
    """Sends `content` under the length that it is told to state, or under none."""

    content = CONTENT
    length: str | None = None
    sent = 0

    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/small.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if start else 200)
        if self.server.length is not None:
            self.send_header("Content-Length", self.server.length)
        self.end_headers()
        content = self.server.content[start:]
        try:
            for at in range(0, len(content), 1 << 16):
                self.wfile.write(content[at : at + (1 << 16)])
                self.server.sent += 1 << 16
        except OSError:  # the other side has had enough
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def refusal(archive: Archive, root: Path) -> str:
    with pytest.raises(ValueError, match=r"small.bin must be a (file to )?download") as error:
        downloaded(archive, root)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_download_stops_soon_after_the_recorded_size(tmp_path: Path, server: Server) -> None:
    server.content = bytes(100 << 20)
    told = refusal(Archive(server.url(), None, SIZE), tmp_path)
    assert f"a download of {SIZE:,} bytes, got 'more'" in told
    assert server.sent < 50 << 20  # what sockets hold, not what the server has
    assert list(tmp_path.iterdir()) == []


def test_download_stops_at_a_ceiling_where_no_size_is_known(
    tmp_path: Path, server: Server, monkeypatch
) -> None:
    monkeypatch.setattr(archives, "MOST_BYTES", SIZE - 1)
    archive = Archive(server.url(), None, None)
    assert f"a download of at most {SIZE - 1:,} bytes, got 'more'" in refusal(archive, tmp_path)
    server.length = str(SIZE)
    assert f"at most {SIZE - 1:,} bytes, got '{SIZE:,}'" in refusal(archive, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("length", ["abc", "-1", "", "9" * 5000, str(SIZE + 1), "999"])
def test_download_refuses_a_length_that_is_wrong_and_keeps_what_is_there(
    tmp_path: Path, server: Server, length: str
) -> None:
    partial = tmp_path / "small.bin.partial"
    partial.write_bytes(CONTENT[:1000])
    server.length = length
    told = refusal(Archive(server.url(), None, SIZE), tmp_path)
    assert "invalid literal" not in told
    assert len(told) < 400
    assert partial.read_bytes() == CONTENT[:1000]


def test_download_without_a_length_goes_on_where_it_broke(tmp_path: Path, server: Server) -> None:
    archive = Archive(server.url(), None, SIZE)
    server.content = CONTENT[:1000]
    assert f"a download of {SIZE:,} bytes, got '1,000'. The conn" in refusal(archive, tmp_path)
    server.content, server.sent = CONTENT, 0
    seen: list[tuple[int, int]] = []
    file = downloaded(archive, tmp_path, lambda *now: seen.append(now))
    assert file.read_bytes() == CONTENT
    assert seen[-1] == (SIZE, SIZE)


def test_download_takes_a_file_whose_size_nobody_knows(tmp_path: Path, server: Server) -> None:
    assert downloaded(Archive(server.url(), None, None), tmp_path).read_bytes() == CONTENT
