"""The server, asked by the `openai` package and by clients that misbehave; ids and text are those of the engine alone."""

import asyncio
import http.client
import json
import socket
import threading
import time
from types import SimpleNamespace

import openai
import pytest
import uvicorn

from specrun import DraftOptions, Piece, Sampling, load_engine
from specrun_cli.server.app import MOST_BODY, build
from specrun_cli.server.worker import BusyError, Job, Worker

MODEL = "random"
PROMPT = "Once upon a time"
TURN = [{"role": "user", "content": PROMPT}]


class Served:
    """A server on a free port of loopback, in a thread of this process."""

    def __init__(self, engine, **worker):
        self.engine = engine
        self.worker = Worker(engine, **({"rows": 4, "most_waiting": 64} | worker))
        app = build(engine, self.worker, model=MODEL, tokens=24)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._server = uvicorn.Server(
            uvicorn.Config(app, log_level="error", access_log=False, timeout_graceful_shutdown=2)
        )
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    @property
    def client(self):
        return openai.OpenAI(
            base_url=f"http://127.0.0.1:{self.port}/v1", api_key="none", max_retries=0, timeout=60
        )

    def post(self, path, body, *, kind="application/json"):
        """Status and parsed answer of one raw request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", path, data, {"Content-Type": kind})
        answer = connection.getresponse()
        read = answer.status, json.loads(answer.read())
        connection.close()
        return read

    def close(self):
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


def engine_of(family, method="ddtree"):
    options = DraftOptions(tree_budget=8) if method.endswith("tree") else None
    draft = None if method == "ar" else family.drafter
    return load_engine(family.target, method, draft=draft, options=options)


@pytest.fixture(name="served", scope="module")
def _served(family):
    served = Served(engine_of(family))
    yield served
    served.close()


@pytest.fixture(name="client", scope="module")
def _client(served):
    with served.client as client:
        yield client


@pytest.fixture(name="alone", scope="module")
def _alone(family):
    """Plain decoding of one prompt, in a process that has no server."""
    return engine_of(family, "ar")


def expected(alone, text=PROMPT, *, chat=True, **settings):
    prompt = alone.chat_ids(text) if chat else text
    return alone.generate(prompt, Sampling(**({"max_new_tokens": 24} | settings)))


def test_the_models_are_listed(client):
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError, match="expected 'random'"):
        client.models.retrieve("gpt-9")


@pytest.mark.parametrize(
    "settings",
    [{"temperature": 0}, {"temperature": 0.9, "seed": 5}, {"temperature": 1, "top_p": 0.7, "seed": -3}],
)
def test_a_chat_is_plain_decoding(client, alone, settings):
    answer = client.chat.completions.create(model=MODEL, messages=TURN, max_tokens=20, **settings)
    plain = expected(alone, max_new_tokens=20, **settings)
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.content == plain.text
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == plain.finish
    assert answer.usage.prompt_tokens == plain.stats.prompt_tokens
    assert answer.usage.completion_tokens == plain.stats.tokens
    assert answer.usage.total_tokens == plain.stats.prompt_tokens + plain.stats.tokens
    drafted = answer.usage.model_extra["speculative"]
    assert drafted["method"] == "ddtree"
    assert 0 < drafted["rounds"] < plain.stats.rounds + 1
    assert drafted["tokens_per_round"] >= 1


@pytest.mark.parametrize("usage", [False, True])
def test_a_stream_joins_to_the_answer(client, alone, usage):
    plain = expected(alone, temperature=0.8, seed=2)
    options = {"stream_options": {"include_usage": True}} if usage else {}
    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=TURN, temperature=0.8, seed=2, stream=True, **options
        )
    )
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    if usage:
        last = chunks.pop()
        assert last.choices == []
        assert last.usage.completion_tokens == plain.stats.tokens
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == plain.text
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == plain.finish
    assert all(chunk.choices[0].finish_reason is None for chunk in chunks[:-1])
    assert len(chunks) > 3, "it came in pieces"


def test_stops_end_an_answer_and_are_cut_off(client, alone):
    whole = expected(alone).text
    stop = whole[8:10]
    answer = client.chat.completions.create(
        model=MODEL, messages=TURN, temperature=0, stop=["never this", stop]
    )
    plain = expected(alone, stop=("never this", stop))
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (plain.text, "stop")
    assert answer.usage.completion_tokens == plain.stats.tokens


@pytest.mark.parametrize("stream", [False, True])
def test_every_cut_is_that_of_plain_decoding(client, alone, stream):
    """Budgets around a block, and stop texts that begin at any place of the answer, broken characters among them."""
    whole = expected(alone, temperature=0.9, seed=3).text
    stops = [whole[place : place + 2] for place in range(0, len(whole) - 2, 17)]
    cuts = [{"max_new_tokens": count} for count in (0, 1, 5, 6)] + [{"stop": (stop,)} for stop in stops]
    for cut in cuts:
        named = {"max_tokens": cut["max_new_tokens"]} if "max_new_tokens" in cut else {"stop": cut["stop"]}
        plain = expected(alone, temperature=0.9, seed=3, **cut)
        answer = client.chat.completions.create(
            model=MODEL, messages=TURN, temperature=0.9, seed=3, stream=stream, **named
        )
        if stream:
            chunks = list(answer)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            finish = chunks[-1].choices[0].finish_reason
        else:
            text, finish = answer.choices[0].message.content, answer.choices[0].finish_reason
            assert answer.usage.completion_tokens == plain.stats.tokens, cut
        assert (text, finish) == (plain.text, plain.finish), cut


def test_texts_are_continued_as_they_stand(client, alone):
    answer = client.completions.create(model=MODEL, prompt=[PROMPT, "def f("], max_tokens=9, temperature=0)
    assert [choice.text for choice in answer.choices] == [
        expected(alone, text, chat=False, max_new_tokens=9).text for text in (PROMPT, "def f(")
    ]
    assert [choice.index for choice in answer.choices] == [0, 1]
    ids = alone.prompt_ids(PROMPT)
    answer = client.completions.create(model=MODEL, prompt=ids, max_tokens=9, temperature=0)
    assert answer.choices[0].text == expected(alone, chat=False, max_new_tokens=9).text
    assert answer.usage.prompt_tokens == len(ids)
    stream = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=9, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == answer.choices[0].text


def test_several_answers_draw_from_streams_of_their_own(client, alone):
    answer = client.chat.completions.create(
        model=MODEL, messages=TURN, n=3, temperature=1, seed=4, max_tokens=12
    )
    plain = alone.generate_batch(
        [alone.chat_ids(PROMPT)] * 3, Sampling(temperature=1.0, seed=4, max_new_tokens=12)
    )
    assert [choice.message.content for choice in answer.choices] == [one.text for one in plain]
    assert answer.usage.prompt_tokens == plain[0].stats.prompt_tokens
    assert answer.usage.completion_tokens == sum(one.stats.tokens for one in plain)


def test_without_a_seed_answers_differ(client):
    texts = {
        client.chat.completions.create(model=MODEL, messages=TURN, max_tokens=20).choices[0].message.content
        for _ in range(3)
    }
    assert len(texts) > 1


def test_turns_and_parts_reach_the_template(client, alone):
    turns = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi "}, {"type": "text", "text": "there"}]},
    ]
    answer = client.chat.completions.create(model=MODEL, messages=turns, temperature=0, max_tokens=8)
    ids = alone.chat_ids(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi there"}]
    )
    assert answer.choices[0].message.content == alone.generate(ids, Sampling(max_new_tokens=8)).text


def test_many_clients_lose_nothing(served, alone):
    """32 at once, every one with settings of its own; some want streams."""
    plain = [
        expected(alone, f"Number {number}", temperature=(number % 3) / 2, seed=number, max_new_tokens=12)
        for number in range(32)
    ]

    async def ask(client, number):
        settings = {"temperature": (number % 3) / 2, "seed": number, "stream": number % 2 == 0}
        turn = [{"role": "user", "content": f"Number {number}"}]
        answer = await client.chat.completions.create(model=MODEL, messages=turn, max_tokens=12, **settings)
        if number % 2:
            return answer.choices[0].message.content
        return "".join([chunk.choices[0].delta.content or "" async for chunk in answer])

    async def all_of_them():
        address = f"http://127.0.0.1:{served.port}/v1"
        async with openai.AsyncOpenAI(base_url=address, api_key="none", max_retries=0, timeout=120) as client:
            return await asyncio.gather(*(ask(client, number) for number in range(32)))

    texts = asyncio.run(all_of_them())
    assert texts == [one.text for one in plain]


BAD = [
    ({"messages": []}, "messages: got none"),
    ({}, "messages: missing"),
    ({"messages": "Hi"}, "messages: got 'Hi', expected list"),
    (
        {"messages": [{"role": "robot", "content": "x"}]},
        "messages: role: got 'robot', expected one of system",
    ),
    ({"messages": [{"role": "user"}]}, "messages: content: missing"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "a part that is no text"),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages: got a lone surrogate"),
    (
        {"messages": [{"role": "user", "content": "x", "tool_calls": [1]}]},
        "messages: tool_calls: not supported",
    ),
    ({"messages": [7]}, "messages: got int, expected a JSON object"),
    ({"temperature": -1}, "temperature: got -1"),
    ({"temperature": "hot"}, "temperature: got 'hot', expected int or float"),
    ({"temperature": True}, "temperature: got True"),
    ({"temperature": 1e300}, "temperature: got a number out of range"),
    ({"top_p": 0}, "top-p: got 0.0, expected a number above 0"),
    ({"max_tokens": -1}, "max new tokens: got -1"),
    ({"max_tokens": 10_000}, "expected at most 256 together"),
    ({"max_tokens": 1.5}, "max_tokens: got 1.5, expected int"),
    ({"n": 0}, "n: got 0, expected 1 to 16"),
    ({"n": 17}, "n: got 17"),
    ({"seed": 2**70}, "seed: got"),
    ({"stop": [1]}, "stop: got [1]"),
    ({"stop": ["x"] * 17}, "stop: got"),
    ({"stop": [""]}, "stop: got"),
    ({"stream": "yes"}, "stream: got 'yes', expected bool"),
    ({"tools": [{"type": "function"}]}, "tools: not supported; leave it out"),
    ({"logprobs": True}, "logprobs: not supported"),
    ({"response_format": {"type": "json_object"}}, "response_format: not supported"),
    ({"frobnicate": 1}, "frobnicate: not supported"),
    ({"repetition_penalty": 0}, "repetition penalty: got 0.0"),
    ({"chat_template_kwargs": {"x": 1}}, "chat_template_kwargs: x: not supported"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=lambda part: part if isinstance(part, str) else "")
def test_bad_requests_are_refused_in_one_line(served, changes, message):
    body = {
        "model": MODEL,
        **({"messages": TURN} if "messages" not in changes and changes else {}),
        **changes,
    }
    status, answer = served.post("/v1/chat/completions", body)
    assert status == 400
    assert message in answer["error"]["message"], answer
    assert "\n" not in answer["error"]["message"]
    assert answer["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("path", "body", "kind", "status", "message"),
    [
        ("/v1/chat/completions", b"{", "application/json", 400, "body: not readable as JSON"),
        ("/v1/chat/completions", b"[" * 100_000, "application/json", 400, "body: not readable as JSON"),
        ("/v1/chat/completions", b"[]", "application/json", 400, "body: got list, expected a JSON object"),
        ("/v1/chat/completions", b"{}", "text/plain", 415, "expected application/json"),
        ("/v1/chat/completions", b" " * (MOST_BODY + 1), "application/json", 413, "body: got more than"),
        (
            "/v1/chat/completions",
            {"model": "gpt-9", "messages": TURN},
            "application/json",
            404,
            "expected 'random'",
        ),
        ("/v1/completions", {"prompt": []}, "application/json", 400, "prompt: got 0 prompts"),
        ("/v1/completions", {"prompt": ""}, "application/json", 400, "prompt: got no tokens"),
        ("/v1/completions", {"prompt": [10**9]}, "application/json", 400, "token id outside"),
        ("/v1/completions", {"prompt": [-1]}, "application/json", 400, "token id outside"),
        ("/v1/completions", {"prompt": [{}]}, "application/json", 400, "prompt: got neither text nor ids"),
        ("/v1/completions", {"prompt": "x", "echo": True}, "application/json", 400, "echo: not supported"),
        ("/v1/nothing", b"{}", "application/json", 404, "Not Found"),
    ],
)
def test_other_refusals(served, path, body, kind, status, message):
    got, answer = served.post(path, body, kind=kind)
    assert got == status
    assert message in answer["error"]["message"], answer


def test_fields_without_effect_are_taken(client, alone):
    answer = client.chat.completions.create(
        model=MODEL,
        messages=TURN,
        temperature=0,
        user="me",
        logprobs=False,
        tools=[],
        response_format={"type": "text"},
    )
    assert answer.choices[0].message.content == expected(alone).text


def test_a_client_that_goes_away_ends_its_answer(family, alone):
    """Twenty of them, at random moments of an answer; the next one gets what a fresh server would say."""
    served = Served(engine_of(family), rows=2)
    try:
        for number in range(20):
            connection = socket.create_connection(("127.0.0.1", served.port))
            body = json.dumps(
                {"messages": TURN, "max_tokens": 200, "seed": number, "stream": number % 2 == 0}
            ).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            time.sleep(number * 0.007)
            connection.close()
        with served.client as client:
            answer = client.chat.completions.create(model=MODEL, messages=TURN, temperature=0.9, seed=1)
        assert answer.choices[0].message.content == expected(alone, temperature=0.9, seed=1).text
        assert served.worker.waiting == 0
    finally:
        served.close()


class Endless:
    """An engine whose answers end when nobody wants them any more, and not before."""

    method = SimpleNamespace(name="endless")
    context = 10**6

    def __init__(self):
        self.started, self.ended = threading.Event(), threading.Event()

    def chat_ids(self, turns, *, thinking):
        return [1]

    def check(self, prompt, sampling):
        pass

    def stream_batch(self, prompts, samplings, *, numbers, dropped):
        while not dropped(0):
            self.started.set()
            time.sleep(0.005)
            yield Piece(index=0, text="x", token_ids=[1], generation=None)
        self.ended.set()


@pytest.mark.parametrize("stream", [False, True])
def test_a_closed_connection_reaches_the_engine(stream):
    engine = Endless()
    served = Served(engine)
    try:
        with socket.create_connection(("127.0.0.1", served.port)) as connection:
            body = json.dumps({"messages": TURN, "stream": stream}).encode()
            head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert engine.started.wait(30)
            assert not engine.ended.is_set()
        assert engine.ended.wait(30), "the answer went on for nobody"
    finally:
        served.close()


class Slow:
    """An engine that decodes when it is told to."""

    def __init__(self):
        self.go = threading.Semaphore(0)
        self.groups = []

    def stream_batch(self, prompts, samplings, *, numbers, dropped):
        self.groups.append(prompts)
        for place in range(len(prompts)):
            self.go.acquire()
            if not dropped(place):
                yield place


def test_the_queue_is_bounded_and_groups_fill_the_rows():
    engine, seen = Slow(), []
    worker = Worker(engine, rows=2, most_waiting=3)

    def job(name):
        return Job(prompt=[name], sampling=Sampling(), number=0, put=seen.append)

    worker.submit([job(0)])
    while worker.waiting:
        time.sleep(0.001)
    waiting = [job(1), job(2), job(3)]
    worker.submit(waiting[:2])
    with pytest.raises(BusyError):
        worker.submit([job(8), job(9)])
    assert worker.waiting == 2, "all or none"
    worker.submit(waiting[2:])
    waiting[1].dropped = True
    for _ in range(4):
        engine.go.release()
    while len(engine.groups) < 3:
        time.sleep(0.001)
    worker.close()
    # the dropped one left its place in the group empty
    assert engine.groups == [[[0]], [[1]], [[3]]]


def test_a_full_queue_is_said_as_429(family, monkeypatch):
    served = Served(engine_of(family), most_waiting=1)
    try:
        status, answer = served.post("/v1/chat/completions", {"messages": TURN, "n": 2})
    finally:
        served.close()
    assert (status, answer["error"]["type"]) == (429, "overloaded")


def test_an_engine_that_fails_is_said_and_served_on(served, monkeypatch, alone, caplog):
    whole = served.engine.stream_batch

    def failing(*given, **named):
        monkeypatch.setattr(served.engine, "stream_batch", whole)
        raise RuntimeError("out of luck")

    monkeypatch.setattr(served.engine, "stream_batch", failing)
    status, answer = served.post("/v1/chat/completions", {"messages": TURN})
    assert (status, answer["error"]["type"]) == (500, "server_error")
    assert "out of luck" in answer["error"]["message"]
    assert "a group of 1 answers failed" in caplog.text
    status, answer = served.post("/v1/chat/completions", {"messages": TURN, "temperature": 0})
    assert answer["choices"][0]["message"]["content"] == expected(alone).text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--port", 70_000), "port: got 70000, expected 0"),
        (("--batch-size", 0), "batch-size: got 0, expected at least 1"),
        (("--queue", 0), "queue: got 0"),
        (("--max-new-tokens", 0), "max-new-tokens: got 0"),
        (("--host", "256.0.0.1", "--port", 0), "port: got 0 on 256.0.0.1"),
        (("--method", "magic", "--port", 0), "method: got 'magic'"),
    ],
)
def test_a_server_that_cannot_start(specrun, arguments, message):
    outcome = specrun("serve", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"specrun: {message}"), outcome.err


def test_a_port_that_is_taken(specrun):
    with socket.create_server(("127.0.0.1", 0)) as held:
        outcome = specrun("serve", "--port", held.getsockname()[1])
    assert outcome.code == 2
    assert "expected a free one; choose it with --port" in outcome.err
