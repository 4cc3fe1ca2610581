"""A judge over HTTP for tests/rollouts_test.sh: prints its port, and answers by the path of the request.

  /even      1 if the completion holds an even digit, else 0
  /chunks    the same in chunks, as {"reward": ...}
  /flaky     the same, but every third request fails, each in another way
  /NAME      a hostile answer of that name, always
"""
import json
import socket
import sys
import threading

HEAD = b"HTTP/1.1 200 OK\r\n"


def framed(body):
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


HOSTILE = {
    "closed": b"",
    "noise": b"\x00\xff\x00\xff" * 64,
    "half": HEAD + b"Content-Length: 10\r\n\r\n1",
    "huge": HEAD + b"Content-Length: 99999999999999999999\r\n\r\n1",
    "endless": HEAD + b"X: " + b"a" * 200000,
    "text": framed(b'"good"'),
    "nan": framed(b"NaN"),
    "infinite": framed(b"1e999"),
    "deep": framed(b"[" * 5000),
    "chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n1\r\n",
    "moved": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "error": b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
}


def request_of(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None, None
        data += more
    head, body = data.split(b"\r\n\r\n", 1)
    length = next(int(l.split(b":")[1]) for l in head.split(b"\r\n") if l.lower().startswith(b"content-length"))
    while len(body) < length:
        body += connection.recv(65536)
    return head.split(b" ")[1].decode()[1:], json.loads(body)


def answer(connection, count):
    path, body = request_of(connection)
    if path is None:
        return
    if path == "slow":
        threading.Event().wait(2)
        return
    if path == "flaky" and count % 3 == 0:
        connection.sendall(list(HOSTILE.values())[count // 3 % len(HOSTILE)])
        return
    if path in HOSTILE:
        connection.sendall(HOSTILE[path])
        return
    assert set(body) <= {"prompt", "completion", "answer"} and isinstance(body["prompt"], str), body
    reward = b"1.0" if any(c in "02468" for c in body["completion"]) else b"0"
    if path == "chunks":
        whole = b'{"why": "x", "reward": ' + reward + b"}"
        parts = [whole[:7], whole[7:]]
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" +
                           b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n")
    else:
        connection.sendall(framed(reward))


def main():
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    for count in range(1 << 30):
        connection, _ = server.accept()

        def one(connection=connection, count=count):
            with connection:
                try:
                    answer(connection, count)
                except OSError:
                    pass
        threading.Thread(target=one, daemon=True).start()


if __name__ == "__main__":
    main()
