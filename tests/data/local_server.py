"""A server on this machine, and answers that it can be told to give."""

import contextlib
import http.server
import threading
import time


class Server:
    """An HTTP server on this machine that answers with one of `answers` after the other."""

    def __init__(self):
        self.answers, self.paths = [], []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.paths.append(self.path)
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

    def close(self):
        self.http.shutdown()
        self.http.server_close()


def send(content, length=None):
    def answer(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(length or len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def fail(status):
    return lambda handler: handler.send_error(status)


def hang(seconds):
    def answer(handler):
        time.sleep(seconds)

    return answer
