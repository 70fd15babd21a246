"""Random conversations of a kubelet with its runtime: calls that overlap, end in every way, and repeat headers."""

import random
from collections.abc import Iterator

from tests.unit.conversation import Conversation, chatter, grpc, rst

METHODS = [
    "/runtime.v1.RuntimeService/Status", "/runtime.v1.RuntimeService/ListContainers",
    "/runtime.v1.RuntimeService/ListPodSandbox", "/runtime.v1.RuntimeService/ExecSync",
    "/runtime.v1.ImageService/ImageStatus", "/runtime.v1.RuntimeService/GetContainerEvents",
]  # fmt: skip

ENDS = ["ok"] * 8 + ["error", "trailers_only", "client_reset", "server_reset", "no_trailers"]


class Talk:
    """One connection with `count` calls, at most `at_once` of them open."""

    def __init__(self, seed: int, count: int = 12, at_once: int = 4) -> None:
        self.random = random.Random(seed)
        self.conversation = Conversation().open()
        waiting, going = count, []
        while waiting or going:
            if waiting and len(going) < at_once and self.random.random() < 0.6:
                waiting -= 1
                going.append(self._call())
            elif going:
                call = self.random.choice(going)
                if next(call, None) is None:
                    going.remove(call)
            if self.random.random() < 0.3:
                self.conversation.write(self.random.choice(["client", "server"]), chatter())
        # What tells of bytes lost before: the last records of a connection cannot.
        self.conversation.write("client", chatter())
        self.conversation.write("server", chatter())
        self.conversation.close()
        self.records = self.conversation.records

    @property
    def losable(self) -> range:
        """Places of the records whose loss shows in later ones."""
        return range(len(self.records) - 5)

    def _bytes(self, most: int) -> bytes:
        return self.random.randbytes(self.random.choice([0, 3, 60, self.random.randrange(most)]))

    def _call(self) -> Iterator[bool]:
        """Each step is a write."""
        rng, talk = self.random, self.conversation
        talk.stream += 2
        stream = talk.stream
        extra = (
            {"traceparent": f"00-{rng.randbytes(16).hex()}-{rng.randbytes(8).hex()}-01"} if rng.random() < 0.2 else {}
        )
        timeout = rng.choice(["120000m", "120000m", "119998m", f"{rng.randrange(1000, 9999)}m", None])
        block = talk.client.encode(talk.request_fields(rng.choice(METHODS), timeout, **extra))
        cuts = sorted(rng.sample(range(len(block) + 1), 2)) if rng.random() < 0.1 else ()
        headers = talk.headers(stream, block, pad=rng.choice([None] * 9 + [0, 5]), cuts=cuts)
        body = talk.data(stream, grpc(self._bytes(40_000)), end=True)
        if rng.random() < 0.7:
            talk.write("client", headers + body)
        else:
            talk.write("client", headers)
            yield True
            talk.write("client", body)
        yield True
        end = rng.choice(ENDS)
        if end == "client_reset":
            if rng.random() < 0.5:
                talk.write("server", talk.response_headers(stream))
                yield True
            talk.write("client", rst(stream))
        elif end == "trailers_only":
            talk.fail(stream, rng.choice([2, 5]), f"failure {rng.randrange(4)}")
        else:
            yield from self._answer(stream, end)

    def _answer(self, stream: int, end: str) -> Iterator[bool]:
        rng, talk = self.random, self.conversation
        pieces = [talk.response_headers(stream)]
        pieces += [
            talk.data(stream, grpc(self._bytes(60_000)), most=rng.choice([16384, 500]))
            for _ in range(rng.choice([1, 1, 1, 0, 3]))
        ]
        if end == "server_reset":
            pieces.append(rst(stream, rng.choice([0, 2, 7, 8, 11])))
        elif end == "no_trailers":
            pieces.append(talk.data(stream, b"", end=True))
        for piece in pieces:
            talk.write("server", piece)
            if rng.random() < 0.4:
                yield True
        if end == "ok":
            talk.write("server", talk.trailers(stream))
        elif end == "error":
            talk.write("server", talk.trailers(stream, 5, f"no such thing {rng.randrange(3)}"))
