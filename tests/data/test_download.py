"""A real server on this machine, which breaks off, lies and is not there."""

import hashlib
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from taut.data.download import FetchError, fetch, fetch_file
from taut.data.official_sets import OfficialFile, OfficialSet
from taut.errors import DamagedFileError, DataError

CONTENT = np.random.default_rng(0).bytes(700_000)
FILE = OfficialFile("numbers.bin", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


class Handler(BaseHTTPRequestHandler):
    """Serves by the folder of the address, and notes where each request began."""

    def do_GET(self):
        mirror = self.path.strip("/").partition("/")[0]
        server = self.server
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        server.requests.append((mirror, start))  # type: ignore[attr-defined]
        content = CONTENT
        if mirror == "404":
            self.send_error(404)
            return
        if mirror in ("wrong", "wrong-and-breaking"):
            content = bytes(len(CONTENT))
        if mirror == "page":
            content = b"<html>please log in</html>"
        if mirror == "deaf":
            start = 0
        status = 206 if start else 200
        if mirror == "liar":
            status = 206
        self.send_response(status)
        if status == 206:
            first = 5 if mirror == "liar" else start
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        if mirror != "endless":
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        body = content[start:]
        if "breaking" in mirror:
            body = body[:200_000]
        if mirror == "silent":
            body = b""
        if mirror == "endless":
            body = body + bytes(300_000)
        try:
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            pass  # a client may have seen enough

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.requests = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def mirrors(server, *names):
    return tuple(f"http://127.0.0.1:{server.server_port}/{name}/" for name in names)


def test_a_whole_file(server, tmp_path):
    seen = []
    path = fetch_file(
        FILE,
        mirrors(server, "good"),
        tmp_path / "a" / "b",
        on_progress=lambda *args: seen.append(args),
    )
    assert path.read_bytes() == CONTENT
    assert [item.name for item in path.parent.iterdir()] == ["numbers.bin"]
    done = [there for _, there, _ in seen]
    assert done == sorted(done) and seen[-1] == ("numbers.bin", FILE.size, FILE.size)


def test_what_is_there_is_not_fetched_again(server, tmp_path):
    (tmp_path / "numbers.bin").write_bytes(CONTENT)
    fetch_file(FILE, mirrors(server, "good"), tmp_path)
    assert server.requests == []


def test_what_broke_off_goes_on_where_it_stopped(server, tmp_path):
    path = fetch_file(FILE, mirrors(server, "breaking"), tmp_path)
    assert path.read_bytes() == CONTENT
    assert [start for _, start in server.requests] == [0, 200_000, 400_000, 600_000]


def test_an_earlier_call_is_continued(server, tmp_path):
    (tmp_path / "numbers.bin.part").write_bytes(CONTENT[:123_456])
    assert fetch_file(FILE, mirrors(server, "good"), tmp_path).read_bytes() == CONTENT
    assert server.requests == [("good", 123_456)]
    assert not (tmp_path / "numbers.bin.part").exists()


def test_a_complete_part_only_needs_its_name(server, tmp_path):
    (tmp_path / "numbers.bin.part").write_bytes(CONTENT)
    assert fetch_file(FILE, mirrors(server, "good"), tmp_path).read_bytes() == CONTENT
    assert server.requests == []


@pytest.mark.parametrize("left", [bytes(1000), bytes(len(CONTENT)), bytes(len(CONTENT) + 9)])
def test_wrong_bytes_left_by_others_are_dropped(server, tmp_path, left):
    (tmp_path / "numbers.bin.part").write_bytes(left)
    assert fetch_file(FILE, mirrors(server, "good"), tmp_path).read_bytes() == CONTENT


def test_a_mirror_that_cannot_resume_sends_all(server, tmp_path):
    (tmp_path / "numbers.bin.part").write_bytes(CONTENT[:1000])
    assert fetch_file(FILE, mirrors(server, "deaf"), tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize(
    "bad", ["404", "wrong", "wrong-and-breaking", "page", "silent", "liar", "endless"]
)
def test_the_next_mirror_helps(server, tmp_path, bad):
    if bad == "endless":  # it has no end, but its beginning is right
        assert fetch_file(FILE, mirrors(server, bad), tmp_path).read_bytes() == CONTENT
        return
    assert fetch_file(FILE, mirrors(server, bad, "good"), tmp_path).read_bytes() == CONTENT
    assert server.requests[0][0] == bad and server.requests[-1][0] == "good"


def test_a_dead_mirror_is_passed_over(server, tmp_path):
    dead = "http://127.0.0.1:9/"  # nobody listens on the port of discard
    path = fetch_file(FILE, (dead, *mirrors(server, "good")), tmp_path)
    assert path.read_bytes() == CONTENT


def test_when_none_helps_each_is_quoted_and_nothing_has_the_name(server, tmp_path):
    with pytest.raises(FetchError) as caught:
        fetch_file(FILE, mirrors(server, "404", "page", "wrong"), tmp_path)
    for text in (
        "fetch: no mirror provides numbers.bin: ",
        "/404/: HTTP 404 Not Found; ",
        f"/page/: offers 26 bytes instead of {FILE.size}; ",
        "/wrong/: wrong checksum, SHA-256 ",
    ):
        assert text in str(caught.value)
    assert not (tmp_path / "numbers.bin").exists()


def test_what_came_is_kept_for_the_next_try(server, tmp_path):
    def give_up(name, done, total):
        if done >= 300_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_file(FILE, mirrors(server, "good"), tmp_path, on_progress=give_up)
    assert not (tmp_path / "numbers.bin").exists()
    kept = (tmp_path / "numbers.bin.part").read_bytes()
    assert len(kept) >= 300_000 and CONTENT.startswith(kept)
    assert fetch_file(FILE, mirrors(server, "good"), tmp_path).read_bytes() == CONTENT
    assert server.requests[-1] == ("good", len(kept))


def test_another_file_of_that_name_is_left_alone(server, tmp_path):
    (tmp_path / "numbers.bin").write_bytes(b"mine")
    with pytest.raises(DamagedFileError, match="it has .* and 4 bytes instead of 700000. Delete"):
        fetch_file(FILE, mirrors(server, "good"), tmp_path)
    assert (tmp_path / "numbers.bin").read_bytes() == b"mine"


def test_a_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(DataError, match="must be a folder that can be written to"):
        fetch_file(FILE, mirrors(server, "good"), tmp_path / "taken")


def test_several_at_once_fetch_it_once(server, tmp_path):
    with ThreadPoolExecutor(4) as pool:
        calls = [
            pool.submit(fetch_file, FILE, mirrors(server, "breaking"), tmp_path) for _ in range(4)
        ]
        assert {call.result().read_bytes() for call in calls} == {CONTENT}
    assert [start for _, start in server.requests] == [0, 200_000, 400_000, 600_000]


def test_all_files_of_a_set(server, tmp_path):
    known = OfficialSet("set", "Set", (FILE,), mirrors(server, "404", "good"), ("a", "b"), ("set",))
    assert fetch(known, tmp_path) == [tmp_path / "numbers.bin"]
    assert known.find(FILE, tmp_path) is None
    assert fetch(known, tmp_path / "set") == [known.find(FILE, tmp_path)]
