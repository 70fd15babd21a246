"""What every answer carries and every request must show."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tracer.api import problem

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Guard:
    """Adds `HEADERS`, and refuses a Host that is not ours.

    A page of another site can make its own name mean 127.0.0.1 (DNS rebinding) and then read what is served there;
    its requests still carry its name as Host.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        host = Headers(scope=scope).get("host", "")
        if self._hosts and host.lower() not in self._hosts:
            text = "Host: this interface answers only under its own address; use 127.0.0.1 or localhost"
            await problem.answer(421, text)(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)
