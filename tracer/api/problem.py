"""Errors as problem details (RFC 9457): one form for everything that is not an answer."""

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tracer.errors import StoreError
from tracer.store import CursorError

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):  # noqa: N818  (the RFC's word)
    """Raised by a route: the answer's status and what to do, in one sentence."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def answer(status: int, detail: str, headers: dict[str, str] | None = None, **more: Any) -> Response:
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    return Response(to_json(body), status, headers, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Every error of `app` becomes a problem; what is ours (5xx) says nothing of the inside."""

    @app.exception_handler(Problem)
    def _problem(_: Request, error: Problem) -> Response:
        return answer(error.status, error.detail)

    @app.exception_handler(CursorError)
    def _cursor(_: Request, error: CursorError) -> Response:
        return answer(400, f"cursor: {error}")

    @app.exception_handler(StoreError)
    def _store(_: Request, error: StoreError) -> Response:
        log.error("the store cannot be read: %s", error)
        return answer(503, "the store cannot be read now; see the log")

    @app.exception_handler(RequestValidationError)
    def _invalid(request: Request, error: RequestValidationError) -> Response:
        return answer(400, "; ".join(_explained(fault) for fault in error.errors()), errors=_places(error, request))

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> Response:
        detail = str(error.detail)
        if error.status_code == HTTPStatus.NOT_FOUND:
            detail = f"no such route: {request.url.path}; / lists them"
        elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            detail = "this interface only reads: use GET"
        return answer(error.status_code, detail, dict(error.headers or {}))

    @app.exception_handler(Exception)
    def _ours(request: Request, error: Exception) -> Response:
        log.error("%s failed", request.url.path, exc_info=error)
        return answer(500, "criscope failed to answer; see its log")


def _explained(fault: dict[str, Any]) -> str:
    name = ".".join(str(part) for part in fault["loc"][1:]) or str(fault["loc"][0])
    if fault["type"] == "extra_forbidden":
        return f"{name}: no such parameter"
    return f"{name}: {fault['msg'].removeprefix('Value error, ')}"


def _places(error: RequestValidationError, request: Request) -> list[dict[str, str]]:
    """Which parameter is wrong, without its value: an answer does not repeat what came in."""
    del request
    return [
        {"parameter": ".".join(str(part) for part in fault["loc"][1:]), "kind": fault["type"]}
        for fault in error.errors()
    ]
