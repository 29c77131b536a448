"""A server on this machine, and answers that it can be told to give."""

import contextlib
import http.server
import threading


class Server:
    """An HTTP server on this machine that answers with one of `answers` after the other.

    paths and headers: what was asked for; sent: bytes of each body that `serve` sends.
    """

    def __init__(self):
        self.answers, self.paths, self.headers, self.sent = [], [], [], []
        self.closing = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            server_of_test = outer

            def do_GET(self):
                outer.paths.append(self.path)
                outer.headers.append(dict(self.headers))
                answers = outer.answers
                answer = answers.pop(0) if len(answers) > 1 else answers[0]
                with contextlib.suppress(OSError):
                    answer(self)

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def ranges(self):
        """What each request asked for: its Range header, or None."""
        return [headers.get("Range") for headers in self.headers]

    def close(self):
        self.closing.set()
        self.http.shutdown()
        self.http.server_close()


def serve(content, *, cut=None, stall=0.0, ranges=True, **headers):
    """Like a file server, with ranges; more `headers` by name.

    cut: the connection ends after so many bytes of the body, `stall` seconds later.
    ranges: False for a server that knows none.
    """

    def answer(handler):
        asked = handler.headers.get("Range") if ranges else None
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if asked and start >= len(content):
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(content)}")
            handler.end_headers()
            return
        handler.send_response(206 if asked else 200)
        sent = {"Content-Length": str(len(content) - start)}
        if asked:
            sent["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        for name, value in {**sent, **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        body = content[start:][:cut]
        # Before the body: whoever has it all may look at once.
        handler.server_of_test.sent.append(len(body))
        handler.wfile.write(body)
        handler.server_of_test.closing.wait(stall)

    return answer


def respond(status=200, body=b"", **headers):
    def answer(handler):
        handler.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def send(content, length=None):
    return respond(body=content, Content_Length=str(length or len(content)))


def page():
    return respond(
        body=b"<!DOCTYPE html><title>Log in</title>", Content_Type="text/html; charset=utf-8"
    )


def fail(status):
    return respond(status)
