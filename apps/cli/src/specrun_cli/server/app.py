"""HTTP requests in, answers out: the routes of OpenAI's interface over one worker.

A client that goes away ends its answers at the next round. Bodies have to say that they are JSON, so that no web page can
make a browser post one unasked.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from specrun import Engine, Generation, Piece
from specrun_cli.server.asks import Ask, UnknownModelError, chat_ask, completion_ask
from specrun_cli.server.replies import Kind, Reply, complaint
from specrun_cli.server.worker import BusyError, Job, Worker

MOST_BODY: Final = 8 * 2**20
"""Bytes of a request."""

_PATIENCE: Final = 0.2  # seconds between two looks at whether a silent client is still there

Arrived = tuple[int, Piece | Exception]


def build(engine: Engine, worker: Worker, *, model: str, tokens: int) -> Starlette:
    """The application; `tokens` is the length of an answer whose request names none."""
    created = int(time.time())
    card = {"id": model, "object": "model", "created": created, "owned_by": "specrun"}

    async def models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [card]})

    async def one_model(request: Request) -> Response:
        if request.path_params["name"] != model:
            raise UnknownModelError(f"model: got {request.path_params['name']!r}, expected {model!r}")
        return JSONResponse(card)

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "model": model, "waiting": worker.waiting})

    async def chat(request: Request) -> Response:
        ask = chat_ask(await _body(request), engine, model=model, tokens=tokens)
        return await _answer(request, ask, "chat")

    async def completions(request: Request) -> Response:
        ask = completion_ask(await _body(request), engine, model=model, tokens=tokens)
        return await _answer(request, ask, "text")

    async def _answer(request: Request, ask: Ask, kind: Kind) -> Response:
        reply = Reply.new(kind, model, engine.method.name)
        jobs, arrived = _jobs(ask)
        worker.submit(jobs)
        if ask.stream:
            chunks = _chunks(jobs, arrived, reply, ask)
            return StreamingResponse(
                chunks, media_type="text/event-stream", headers={"Cache-Control": "no-cache"}
            )
        answers = await _all(request, jobs, arrived)
        return JSONResponse(reply.whole(answers, len(ask.prompts)))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(worker.close)

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/v1/models", models),
            Route("/v1/models/{name:path}", one_model),
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/completions", completions, methods=["POST"]),
        ],
        exception_handlers={
            UnknownModelError: _refusal(404, code="model_not_found"),
            ValueError: _refusal(400),
            BusyError: _refusal(
                429, "server: too many requests wait already; try again later", kind="overloaded"
            ),
            HTTPException: _http_refusal,
            ClientDisconnect: _refusal(400, "client: went away"),
        },
        lifespan=lifespan,
    )


async def _body(request: Request) -> object:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, f"content-type: got {kind!r}, expected application/json")
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MOST_BODY:
            raise HTTPException(413, f"body: got more than {MOST_BODY} bytes, expected at most that")
    try:
        return json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"body: not readable as JSON ({error})") from error


def _jobs(ask: Ask) -> tuple[list[Job], asyncio.Queue[Arrived]]:
    """A job for every choice, and the queue on this loop where their pieces arrive."""
    loop, arrived = asyncio.get_running_loop(), asyncio.Queue[Arrived]()

    def putter(place: int) -> Callable[[Piece | Exception], None]:
        def put(item: Piece | Exception) -> None:
            # the loop may be gone when the server stops in the middle of an answer
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(arrived.put_nowait, (place, item))

        return put

    pairs = [(prompt, number) for prompt in ask.prompts for number in range(ask.choices)]
    jobs = [
        Job(prompt=prompt, sampling=ask.sampling, number=number, put=putter(place))
        for place, (prompt, number) in enumerate(pairs)
    ]
    return jobs, arrived


async def _all(request: Request, jobs: list[Job], arrived: asyncio.Queue[Arrived]) -> list[Generation]:
    """The finished answers of all jobs, unless the client goes away first."""
    answers: dict[int, Generation] = {}
    gone = asyncio.create_task(_gone(request))
    try:
        while len(answers) < len(jobs):
            item = asyncio.create_task(arrived.get())
            await asyncio.wait({item, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not item.done():
                item.cancel()
                raise ClientDisconnect
            place, piece = item.result()
            if isinstance(piece, Exception):
                raise HTTPException(500, f"engine: {piece}") from piece
            if piece.generation is not None:
                answers[place] = piece.generation
            if gone.done():
                raise ClientDisconnect
    finally:
        gone.cancel()
        _drop(jobs)
    return [answers[place] for place in range(len(jobs))]


async def _gone(request: Request) -> None:
    """Return when the client is not there any more."""
    while not await request.is_disconnected():  # noqa: ASYNC110 - the request has no event for it
        await asyncio.sleep(_PATIENCE)


async def _chunks(
    jobs: list[Job], arrived: asyncio.Queue[Arrived], reply: Reply, ask: Ask
) -> AsyncIterator[str]:
    """Server-sent events. Whoever runs this generator closes it when the client goes away."""
    answers: list[Generation] = []
    try:
        if reply.kind == "chat":
            for place in range(len(jobs)):
                yield _event(reply.opening(place))
        while len(answers) < len(jobs):
            place, item = await arrived.get()
            if isinstance(item, Exception):
                yield _event(complaint(f"engine: {item}", kind="server_error"))
                return
            if item.text:
                yield _event(reply.piece(place, item.text, None))
            if item.generation is not None:
                answers.append(item.generation)
                yield _event(reply.piece(place, "", item.generation.finish))
        if ask.usage:
            yield _event(reply.closing(answers, len(ask.prompts)))
        yield "data: [DONE]\n\n"
    finally:
        _drop(jobs)


def _drop(jobs: list[Job]) -> None:
    for job in jobs:
        job.dropped = True


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _refusal(
    status: int, message: str = "", *, kind: str = "invalid_request_error", code: str | None = None
) -> Any:
    async def handle(_: Request, error: Exception) -> Response:
        headers = {"Retry-After": "1"} if status == 429 else None
        return JSONResponse(complaint(message or str(error), kind=kind, code=code), status, headers)

    return handle


async def _http_refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for it alone"
    kind = "server_error" if error.status_code >= 500 else "invalid_request_error"
    return JSONResponse(complaint(str(error.detail), kind=kind), error.status_code, error.headers)
