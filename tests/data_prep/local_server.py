"""A web server of this machine, in place of the ones that downloads come from."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def served(
    answers: dict[str, bytes], broken: int = 0
) -> Iterator[tuple[str, list[str]]]:
    """The server's address, and the paths that it was asked for so far.

    Args:
        answers: the content by path; any other path is not found.
        broken: of so many first answers the connection is cut in the middle.
    """
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            content = answers.get(self.path)
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            content = content or b""
            cut = len(content) // 2 if len(asked) <= broken else len(content)
            self.wfile.write(content[:cut])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
