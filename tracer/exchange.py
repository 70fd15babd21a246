"""An open call and what is collected of it."""

from tracer.calls import Call, EndedBy
from tracer.heads import PADDED
from tracer.http2 import Frame
from tracer.kept import Kept
from tracer.messages import Body, Message, only
from tracer.streams import Way


class Exchange:
    """Feed DATA frames of both ways; `close` gives up what was kept."""

    __slots__ = (
        "_kept",
        "_request",
        "_response",
        "answer_seen",
        "answered",
        "call",
        "collecting",
        "ended_by",
        "request_encoding",
        "requested",
        "response_encoding",
    )

    def __init__(self, call: Call, kept: Kept, request_encoding: str) -> None:
        self.call = call
        self.requested = False  # the request is complete
        self.answered = False  # so is the answer
        self.answer_seen = 0  # when
        self.ended_by: EndedBy = "server"  # once answered
        self.request_encoding = request_encoding
        self.response_encoding = ""
        self.collecting = False  # there is something to close
        self._kept = kept
        self._request: Body | None = None  # from a message on that is not just one frame's payload
        self._response: Body | None = None

    def request(self, frame: Frame) -> None:
        """More of the request; its first message becomes the call's."""
        call = self.call
        payload = frame.payload if not frame.flags & PADDED else unpadded(frame)
        call.request_bytes += len(payload) + frame.missing
        message = None
        if frame.missing:
            call.complete = False
        elif self._request is None:
            message = only(payload, frame.end)
        if message is None and (payload or frame.missing):
            if self._request is None:
                self._request = self._body(self.request_encoding)
            message = next(iter(self._request.feed(payload, frame.end, frame.missing)), None)
        if call.request is None:
            call.request = message

    def response(self, frame: Frame) -> list[Message]:
        """The messages of the answer that are complete with this frame."""
        call = self.call
        payload = frame.payload if not frame.flags & PADDED else unpadded(frame)
        call.response_bytes += len(payload) + frame.missing
        messages: list[Message] = []
        if frame.missing:
            call.complete = False
        elif self._response is None:
            message = only(payload, frame.end)
            if message is not None:
                messages.append(message)
        if not messages and (payload or frame.missing):
            if self._response is None:
                self._response = self._body(self.response_encoding)
            messages = self._response.feed(payload, frame.end, frame.missing)
        call.responses += len(messages)
        return messages

    def _body(self, encoding: str) -> Body:
        self.collecting = True
        return Body(self._kept, encoding)

    def lose(self, way: Way) -> None:
        """Of what is still sent this way some may be missing."""
        if way == "response":
            self._response = self._lost(self._response)
        elif not self.requested:
            self._request = self._lost(self._request)
        else:
            return
        self.call.complete = False

    def _lost(self, body: Body | None) -> Body:
        body = body or self._body("")
        body.lose()
        return body

    def close(self) -> int:
        """No more is fed; returns how many ways had a message that cannot be."""
        malformed = 0
        for body in (self._request, self._response):
            if body is not None:
                body.close()
                malformed += body.malformed
        return malformed


def unpadded(frame: Frame) -> bytes:
    """The payload of a DATA frame without its padding (RFC 9113, section 6.1)."""
    if not frame.payload:
        return b""
    pad = frame.payload[0]
    return frame.payload[1 : max(1, len(frame.payload) - pad)]
