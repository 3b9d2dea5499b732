"""`ipex llm serve`: answers in OpenAI's form, together what they are alone, and no client can keep the server."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from ipex import llm  # noqa: E402
from ipex._cli import main  # noqa: E402
from ipex.llm._server import Limits, Server  # noqa: E402
from ipex.llm._texts import Busy, Texts, Wanted  # noqa: E402
from llm.families import VOCABULARY, make  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def word_tokenizer() -> Any:
    """Its words are w0, w1 .."""
    from tokenizers import Tokenizer
    from tokenizers.decoders import Metaspace
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Metaspace as AtSpaces

    own = Tokenizer(WordLevel({("" if i == 0 else "▁") + f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    own.pre_tokenizer = AtSpaces()
    own.decoder = Metaspace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=own, unk_token="w0", pad_token="w0")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }} {{ m['content'] }}{% if not loop.last %} {% endif %}{% endfor %}"
    )
    return tokenizer


@pytest.fixture(scope="module")
def models() -> tuple[Any, Any]:
    """A model, and the same optimised."""
    model = make("Llama", max_position_embeddings=600)
    return model, llm.optimize(model, deployment_mode=False)


def alone(model: Any, words: list[int], count: int) -> list[int]:
    with torch.no_grad():
        found = model.generate(torch.tensor([words]), max_new_tokens=count, do_sample=False)
    return found[0, len(words) :].tolist()


def prompt(number: int, count: int) -> list[int]:
    generator = torch.Generator().manual_seed(number)
    return torch.randint(2, VOCABULARY, (count,), generator=generator).tolist()


@contextlib.contextmanager
def serving(model: Any, limits: Limits = Limits(), **more: Any):  # noqa: B008
    server = Server(("127.0.0.1", 0), model, word_tokenizer(), "tiny", limits=limits, **more)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def server(models):
    with serving(models[1]) as it:
        yield it


def connected(server: Server) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)


def ask(server: Server, path: str, body: Any = None) -> tuple[int, Any]:
    connection = connected(server)
    content = body if isinstance(body, (str, bytes, type(None))) else json.dumps(body)
    connection.request("GET" if body is None else "POST", path, content)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def stream(server: Server, path: str, body: dict[str, Any]) -> list[Any]:
    connection = connected(server)
    connection.request("POST", path, json.dumps({**body, "stream": True}))
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/event-stream"
    events = answer.read().decode().split("\n\n")
    assert events.pop() == ""
    assert all(event.startswith("data: ") for event in events)
    assert events.pop() == "data: [DONE]"
    return [json.loads(event[6:]) for event in events]


# -- texts


@pytest.mark.parametrize("codes", [None, torch.int8])
@pytest.mark.parametrize("family", ["Llama", "Mistral", "OPT", "Qwen3", "Bloom", "GPTJ"])
def test_texts_together_are_what_each_is_alone(family, codes):
    """Of other lengths, that come and go at other times; with short windows, and with an attention of their own."""
    model = make(family)
    optimized = llm.optimize(model, kv_cache_dtype=codes)
    texts = Texts(optimized, together=3)
    asked = [(prompt(number, 3 + 5 * (number % 4)), 4 + 3 * (number % 5)) for number in range(9)]
    begun = []
    for words, count in asked:
        begun.append(texts.begin(Wanted(words, count)))
        time.sleep(0.01)
    for text, (words, count) in zip(begun, asked):
        assert list(text) == alone(optimized if codes else model, words, count)
    texts.close(10)


def test_prompts_are_read_in_parts_and_texts_run_on_meanwhile(models, monkeypatch):
    monkeypatch.setattr("ipex.llm._texts.PART", 4)
    texts, order = Texts(models[1]), []
    first = texts.begin(Wanted(prompt(1, 3), 60))
    reader = iter(first)
    assert next(reader) == alone(models[0], prompt(1, 3), 1)[0]
    second = texts.begin(Wanted(prompt(2, 40), 5))
    thread = threading.Thread(target=lambda: order.extend(("first", word) for word in reader))
    thread.start()
    assert list(second) == alone(models[0], prompt(2, 40), 5)
    thread.join()
    assert [word for _, word in order] == alone(models[0], prompt(1, 3), 60)[1:]
    texts.close(10)


def test_several_texts_go_through_one_call(models, monkeypatch):
    """Nothing is together that only looks so."""
    texts = Texts(models[1], together=4)
    sizes: list[int] = []
    logits = texts._logits
    monkeypatch.setattr(texts, "_logits", lambda cache, words, own: sizes.append(len(own)) or logits(cache, words, own))
    begun = [texts.begin(Wanted(prompt(number, 5), 20)) for number in range(6)]
    for text in begun:
        assert len(list(text)) == 20
    assert max(sizes) == 4
    texts.close(10)


def test_chance_depends_on_the_seed_and_not_on_company(models):
    texts = Texts(models[1])
    wanted = Wanted(prompt(1, 5), 12, temperature=1.0, top_p=0.9, seed=7)
    first = list(texts.begin(wanted))
    others = [texts.begin(Wanted(prompt(number, 9), 12, temperature=1.0, seed=number)) for number in range(3)]
    assert list(texts.begin(wanted)) == first
    assert first != alone(models[0], prompt(1, 5), 12)
    assert len({tuple(text) for text in others}) == 3
    assert list(texts.begin(Wanted(prompt(1, 5), 12, temperature=1.0, top_p=1e-6))) == alone(
        models[0], prompt(1, 5), 12
    )
    texts.close(10)


def test_an_error_is_that_of_its_texts_alone(models, monkeypatch):
    texts = Texts(models[1])
    logits, fails = texts._logits, [True]

    def failing(*given: Any) -> Any:
        if fails:
            fails.pop()
            raise RuntimeError("no memory")
        return logits(*given)

    monkeypatch.setattr(texts, "_logits", failing)
    with pytest.raises(RuntimeError, match="no memory"):
        list(texts.begin(Wanted(prompt(1, 5), 4)))
    assert list(texts.begin(Wanted(prompt(1, 5), 4))) == alone(models[0], prompt(1, 5), 4)
    texts.close(10)


def test_too_many_wait_and_those_that_leave_make_room(models):
    texts = Texts(models[1], together=1, waiting=2)
    running = texts.begin(Wanted(prompt(1, 5), 500))
    next(iter(running))
    waiting = [texts.begin(Wanted(prompt(2, 5), 500)) for _ in range(2)]
    with pytest.raises(Busy):
        texts.begin(Wanted(prompt(3, 5), 2))
    waiting[0].leave()
    assert list(waiting[0]) == []
    last = texts.begin(Wanted(prompt(3, 5), 2))
    waiting[1].leave()
    running.leave()
    assert list(last) == alone(models[0], prompt(3, 5), 2)
    texts.close(10)
    with pytest.raises(Busy):
        texts.begin(Wanted(prompt(3, 5), 2))


def test_a_model_without_a_captured_step_is_refused():
    with pytest.raises(ValueError, match="expected a model whose step is captured"):
        Texts(llm.optimize(make("Mamba")))


# -- answers


def words_of(tokens: list[int]) -> str:
    return " ".join(f"w{token}" for token in tokens)


def test_completions(server, models):
    tokens = alone(models[0], [5, 7, 9], 6)
    body = {"model": "tiny", "prompt": [5, 7, 9], "max_tokens": 6, "temperature": 0}
    status, found = ask(server, "/v1/completions", body)
    assert status == 200
    assert found["object"] == "text_completion"
    (choice,) = found["choices"]
    assert choice["text"].split() == words_of(tokens).split()
    assert choice["finish_reason"] == "length"
    shared = {"prompt_tokens_details": {"cached_tokens": 0}}
    assert found["usage"] == {"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9, **shared}
    chunks = stream(server, "/v1/completions", {**body, "stream_options": {"include_usage": True}})
    assert "".join(c["choices"][0]["text"] for c in chunks[:-1]) == choice["text"]
    assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]] == [None] * 6 + ["length"]
    assert chunks[-1]["usage"] == found["usage"]
    assert {c["id"] for c in chunks} == {chunks[0]["id"]}
    assert ask(server, "/v1/completions", {"prompt": [5]})[1]["usage"]["completion_tokens"] == 16


def test_chat(server, models):
    messages = [{"role": "w3", "content": [{"type": "text", "text": "w5 "}, {"type": "text", "text": "w7"}]}]
    tokens = alone(models[0], [3, 5, 7], 5)
    body = {"messages": messages, "max_completion_tokens": 5, "temperature": 0}
    status, found = ask(server, "/v1/chat/completions", body)
    assert status == 200
    assert found["object"] == "chat.completion"
    assert found["choices"][0]["message"]["role"] == "assistant"
    text = found["choices"][0]["message"]["content"]
    assert text.split() == words_of(tokens).split()
    chunks = stream(server, "/v1/chat/completions", body)
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"}
    deltas = [c["choices"][0]["delta"] for c in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == text


def test_stops_are_not_in_the_text_even_in_parts(server, models):
    tokens = alone(models[0], [5, 7, 9], 20)
    text = ask(server, "/v1/completions", {"prompt": [5, 7, 9], "max_tokens": 20, "temperature": 0})[1]
    whole = text["choices"][0]["text"]
    stop = f"w{tokens[3]} w{tokens[4]}"
    body = {"prompt": [5, 7, 9], "max_tokens": 20, "temperature": 0, "stop": [stop, "never"]}
    found = ask(server, "/v1/completions", body)[1]
    assert found["choices"][0]["text"] == whole[: whole.index(stop)]
    assert found["choices"][0]["finish_reason"] == "stop"
    chunks = stream(server, "/v1/completions", body)
    assert "".join(c["choices"][0]["text"] for c in chunks) == whole[: whole.index(stop)]


def test_the_end_of_a_text_ends_it(models, monkeypatch):
    tokens = alone(models[0], [5, 7, 9], 20)
    monkeypatch.setattr(models[1].generation_config, "eos_token_id", [tokens[4], 999])
    first = tokens.index(tokens[4])
    with serving(models[1]) as server:
        body = {"prompt": [5, 7, 9], "max_tokens": 20, "temperature": 0}
        found = ask(server, "/v1/completions", body)[1]
    assert found["choices"][0]["finish_reason"] == "stop"
    assert found["choices"][0]["text"].split() == words_of(tokens[:first]).split()
    assert found["usage"]["completion_tokens"] == first + 1


@pytest.mark.parametrize("mib", [0, 64])
def test_usage_says_what_was_taken_over(models, mib):
    with serving(models[1], prefix_cache_mib=mib) as server:
        for last, shared in ((5, 0), (7, 32 if mib else 0)):
            body = {"prompt": [*prompt(1, 40), last], "max_tokens": 4, "temperature": 0}
            found = ask(server, "/v1/completions", body)[1]
            assert found["choices"][0]["text"].split() == words_of(alone(models[0], body["prompt"], 4)).split()
            assert found["usage"]["prompt_tokens"] == 41
            assert found["usage"]["prompt_tokens_details"] == {"cached_tokens": shared}
            chunks = stream(server, "/v1/completions", {**body, "stream_options": {"include_usage": True}})
            assert chunks[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 32 if mib else 0}


def test_many_clients_at_once(server, models):
    found: dict[int, str] = {}

    def client(number: int) -> None:
        body = {"prompt": prompt(number, 4 + number), "max_tokens": 10, "temperature": 0}
        found[number] = ask(server, "/v1/completions", body)[1]["choices"][0]["text"]

    threads = [threading.Thread(target=client, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(12):
        assert found[number].split() == words_of(alone(models[0], prompt(number, 4 + number), 10)).split()


def test_models_and_health(server):
    status, found = ask(server, "/v1/models")
    assert status == 200
    assert [one["id"] for one in found["data"]] == ["tiny"]
    assert ask(server, "/v1/models/tiny")[1] == found["data"][0]
    assert ask(server, "/health")[0] == 200


WRONG = [
    ("/v1/completions", "{", 400, "expected JSON", None),
    ("/v1/completions", [], 400, "expected an object", None),
    ("/v1/completions", {}, 400, "expected one text", "prompt"),
    ("/v1/completions", {"prompt": [VOCABULARY]}, 400, "expected one text", "prompt"),
    ("/v1/completions", {"prompt": ["w5", "w6"]}, 400, "expected one text", "prompt"),
    ("/v1/completions", {"prompt": ""}, 400, "expected a prompt of at least one token", "prompt"),
    ("/v1/completions", {"prompt": [5] * 600}, 400, "expected a prompt of less than 600 tokens", "prompt"),
    ("/v1/completions", {"prompt": [5], "model": "other"}, 404, "expected 'tiny' in model", "model"),
    ("/v1/completions", {"prompt": [5], "max_tokens": 0}, 400, "expected a whole number from 1", "max_tokens"),
    ("/v1/completions", {"prompt": [5], "temperature": "hot"}, 400, "expected a number from 0 to 2", "temperature"),
    ("/v1/completions", {"prompt": [5], "temperature": True}, 400, "expected a number from 0 to 2", "temperature"),
    ("/v1/completions", {"prompt": [5], "top_p": 0}, 400, "in top_p, got 0", "top_p"),
    ("/v1/completions", {"prompt": [5], "stop": ""}, 400, "expected a text, or at most four", "stop"),
    ("/v1/completions", {"prompt": [5], "stream": "yes"}, 400, "expected true or false in stream", "stream"),
    ("/v1/completions", {"prompt": [5], "n": 2}, 400, "expected no n", "n"),
    ("/v1/completions", {"prompt": [5], "seed": 0.5}, 400, "expected a whole number", "seed"),
    ("/v1/chat/completions", {"messages": []}, 400, "expected a list of messages", "messages"),
    ("/v1/chat/completions", {"messages": [{"role": "user"}]}, 400, "expected messages with a role", "messages"),
    ("/v1/chat/completions", {"messages": [{"role": "w", "content": "w"}], "tools": [1]}, 400, "no tools", "tools"),
    ("/v1/embeddings", {"input": "w5"}, 404, "expected a path that is served", None),
    ("/v1/other", None, 404, "expected a path that is served", None),
]


@pytest.mark.parametrize(("path", "body", "status", "message", "param"), WRONG)
def test_errors_have_the_form_of_openai(server, path, body, status, message, param):
    found = ask(server, path, body)
    assert found[0] == status
    error = found[1]["error"]
    assert message in error["message"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert set(error) == {"message", "type", "param", "code"}


def test_what_asks_for_nothing_is_taken(server):
    body = {"prompt": [5], "max_tokens": 1, "n": 1, "user": "me", "presence_penalty": 0, "logprobs": None}
    assert ask(server, "/v1/completions", body)[0] == 200


def test_a_model_that_fails_is_an_error_of_the_server(models, monkeypatch):
    with serving(models[1]) as server:

        def failing(*_: Any) -> Any:
            raise RuntimeError("no memory")

        monkeypatch.setattr(server.texts, "_logits", failing)
        status, found = ask(server, "/v1/completions", {"prompt": [5]})
        assert status == 500
        assert found["error"]["message"] == "generating failed: no memory"
        connection = connected(server)
        connection.request("POST", "/v1/completions", json.dumps({"prompt": [5], "stream": True}))
        assert b"generating failed: no memory" in connection.getresponse().read()


# -- clients that take their time


def test_requests_have_a_size_and_a_length(models):
    with serving(models[1], Limits(request_bytes=100)) as server:
        status, found = ask(server, "/v1/completions", "x" * 101)
        assert status == 413
        assert "expected at most 100 bytes, got 101" in found["error"]["message"]


HIDDEN = b"GET /health HTTP/1.1\r\n\r\n"  # in a body, where somebody else may see a request


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked", 411),
        ("POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5", 411),
        ("POST /v1/completions HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 24", 411),
        ("POST /v1/completions HTTP/1.1\r\nContent-Length: \u00b2", 411),
        ("GET /health HTTP/1.1\r\nContent-Length: 24", 200),
        ("GET /health HTTP/1.1\r\nTransfer-Encoding: chunked", 200),
    ],
)
def test_nothing_in_a_body_is_taken_for_a_request(models, head, status):
    with serving(models[1]) as server, socket.create_connection(server.server_address[:2], timeout=10) as raw:
        raw.sendall(head.encode("latin1") + b"\r\n\r\n" + HIDDEN)
        answer = b""
        while part := raw.recv(1000):
            answer += part
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert answer.count(b"HTTP/1.1") == 1


def test_slow_clients_are_let_go(models):
    """One that sends nothing, one that sends a byte now and then, and one that sends half a body."""
    with serving(models[1], Limits(seconds=0.5)) as server:
        begun = time.monotonic()
        raws = [socket.create_connection(server.server_address[:2], timeout=10) for _ in range(3)]
        raws[2].sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 50\r\n\r\n{")
        ended = 0
        with contextlib.suppress(OSError):
            for byte in b"GET /health HTTP/1.1\r\n" * 20:
                raws[1].send(bytes([byte]))
                time.sleep(0.1)
                ended += 1
        assert 3 <= ended < 60
        for raw in raws:
            with contextlib.suppress(ConnectionError):
                assert raw.recv(10) == b""
            raw.close()
        assert time.monotonic() - begun < 8
        assert ask(server, "/health")[0] == 200


def test_connections_are_counted(models):
    with serving(models[1], Limits(connections=2)) as server:
        raws = [socket.create_connection(server.server_address[:2], timeout=10) for _ in range(2)]
        time.sleep(0.2)
        status, found = ask(server, "/health")
        assert status == 503
        assert "all the connections" in found["error"]["message"]
        for raw in raws:
            raw.close()
        deadline = time.monotonic() + 10
        while ask(server, "/health")[0] != 200:
            assert time.monotonic() < deadline


def test_a_full_queue_is_told(models):
    with serving(models[1], together=1, waiting=1) as server:
        held = [server.texts.begin(Wanted(prompt(1, 5), 500))]
        next(iter(held[0]))
        held.append(server.texts.begin(Wanted(prompt(1, 5), 500)))
        status, found = ask(server, "/v1/completions", {"prompt": [5]})
        assert status == 429
        assert found["error"]["type"] == "server_error"
        for text in held:
            text.leave()


@pytest.mark.parametrize("streams", [False, True])
def test_a_client_that_goes_takes_its_text_along(models, streams):
    with serving(models[1]) as server:
        connection = connected(server)
        body = {"prompt": [5], "max_tokens": 590, "stream": streams, "temperature": 0}
        connection.request("POST", "/v1/completions", json.dumps(body))
        deadline = time.monotonic() + 10
        while not server.texts._texts:
            assert time.monotonic() < deadline
        (text,) = server.texts._texts
        connection.sock.close()
        while server.texts._texts:
            assert time.monotonic() < deadline
        assert text.is_left
        assert text.length < 590


def test_connections_are_kept(server):
    connection = connected(server)
    for _ in range(3):
        connection.request("GET", "/health")
        answer = connection.getresponse()
        assert answer.read() == b'{"status": "ok"}'
        own = connection.sock
        assert own is not None


# -- the command


def test_the_command_wants_no_negative_memory(capsys):
    assert main(["llm", "serve", "model.gguf", "--prefix-cache-mib", "-1"]) == 2
    assert "expected 0 or more in --prefix-cache-mib, got -1" in capsys.readouterr().err


def test_the_command_serves_until_sigterm_and_finishes_answers(models, tmp_path):
    models[0].save_pretrained(tmp_path / "tiny")
    word_tokenizer().save_pretrained(tmp_path / "tiny")
    command = [sys.executable, "-m", "ipex", "llm", "serve", str(tmp_path / "tiny"), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ}) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if line.startswith("serving tiny at http://127.0.0.1:"))
        connection = http.client.HTTPConnection("127.0.0.1", int(line.split(":")[2].split("/")[0]), timeout=60)
        body = {"prompt": [5, 7], "max_tokens": 300, "stream": True, "temperature": 0}
        connection.request("POST", "/v1/completions", json.dumps(body))
        answer = connection.getresponse()
        first = answer.readline()
        process.send_signal(signal.SIGTERM)
        rest = answer.read().decode()
        assert process.wait(30) == 0
    chunks = [json.loads(event[6:]) for event in (first.decode() + rest).split("\n\n") if event.startswith("data: {")]
    text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
    assert text.split() == words_of(alone(models[0], [5, 7], 300)).split()
    assert rest.endswith("data: [DONE]\n\n")
