"""OpenAI's form of requests and answers for language models: what is asked for, and how an answer is written.

https://platform.openai.com/docs/api-reference. A field that would change the answer and that is not known is an error.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tokenizers.decoders import DecodeStream

from ._texts import Text, Wanted


class BadRequest(Exception):
    """A request that can't be answered, and why."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param, self.code, self.status = param, code, status


def error_body(message: str, status: int, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """Return an error in OpenAI's form."""
    kind = "invalid_request_error" if status < 500 and status != 429 else "server_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


_HARMLESS = {
    "user",
    "metadata",
    "store",
    "service_tier",
    "prompt_cache_key",
    "safety_identifier",
    "parallel_tool_calls",
}
_KNOWN = {"model", "stream", "stream_options", "temperature", "top_p", "seed", "stop", "max_tokens"}
# Known where they ask for nothing.
_AT_REST: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "echo": (None, False),
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "logprobs": (None, False),
    "logit_bias": (None, {}),
    "response_format": (None, {"type": "text"}),
    "suffix": (None, ""),
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
}


def _number(body: dict[str, Any], name: str, usual: Any, least: float, most: float, whole: bool = False) -> Any:
    value = body.get(name)
    if value is None:
        return usual
    is_number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:
        raise BadRequest(
            f"expected {'a whole number' if whole else 'a number'} from {least} to {most} in {name}, got {value!r}.",
            name,
        )
    return value


@dataclass(frozen=True)
class Asked:
    """A request, read and checked."""

    wanted: Wanted
    stops: tuple[str, ...]
    streams: bool
    tells_usage: bool  # at the end of a stream
    is_chat: bool


def read(body: Any, is_chat: bool, served: str, tokenizer: Any, ends: frozenset[int], longest: int | None) -> Asked:
    """Read a request. BadRequest says what is wrong."""
    if not isinstance(body, dict):
        raise BadRequest("expected an object of JSON.")
    if body.get("model") not in (None, served):
        raise BadRequest(f"expected '{served}' in model, got {body['model']!r}.", "model", "model_not_found", 404)
    own = {"messages", "max_completion_tokens"} if is_chat else {"prompt"}
    for name, value in body.items():
        if name not in _KNOWN | _HARMLESS | own and value not in _AT_REST.get(name, (None,)):
            raise BadRequest(f"expected no {name}: it is not supported. Leave it out.", name, "unsupported_parameter")
    words = _chat(body, tokenizer) if is_chat else _prompt(body, tokenizer)
    if not words:
        raise BadRequest("expected a prompt of at least one token.", "messages" if is_chat else "prompt")
    left = 1 << 20 if longest is None else longest - len(words)
    if left < 1:
        raise BadRequest(
            f"expected a prompt of less than {longest} tokens, got {len(words)}.",
            "messages" if is_chat else "prompt",
            "context_length_exceeded",
        )
    count = _number(body, "max_completion_tokens", None, 1, 1 << 30, whole=True) if is_chat else None
    if count is None:
        count = _number(body, "max_tokens", left if is_chat else 16, 1, 1 << 30, whole=True)
    stream, options = body.get("stream"), body.get("stream_options") or {}
    if stream not in (None, True, False) or not isinstance(options, dict):
        raise BadRequest("expected true or false in stream, and an object in stream_options.", "stream")
    return Asked(
        Wanted(
            words,
            min(count, left),
            ends,
            float(_number(body, "temperature", 1.0, 0, 2)),
            float(_number(body, "top_p", 1.0, 1e-6, 1)),
            _number(body, "seed", None, -(1 << 63), (1 << 63) - 1, whole=True),
        ),
        _stops(body.get("stop")),
        bool(stream),
        bool(options.get("include_usage")),
        is_chat,
    )


def _stops(stop: Any) -> tuple[str, ...]:
    stops = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or len(stops) > 4 or not all(isinstance(one, str) and one for one in stops):
        raise BadRequest("expected a text, or at most four, in stop.", "stop")
    return tuple(stops)


def _prompt(body: dict[str, Any], tokenizer: Any) -> list[int]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return list(tokenizer(prompt)["input_ids"])
    size = len(tokenizer)
    if isinstance(prompt, list) and all(type(word) is int and 0 <= word < size for word in prompt):
        return prompt
    raise BadRequest("expected one text, or one list of tokens, in prompt.", "prompt")


def _chat(body: dict[str, Any], tokenizer: Any) -> list[int]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("expected a list of messages.", "messages")
    if tokenizer.chat_template is None:
        raise BadRequest("expected /v1/completions: this model's tokenizer has no template for chats.", "messages")
    said = [_message(one) for one in messages]
    try:
        found = tokenizer.apply_chat_template(said, add_generation_prompt=True, return_dict=True)
    except Exception as error:
        raise BadRequest(f"expected messages that the model's template takes: {error}", "messages") from error
    return list(found["input_ids"])


def _message(message: Any) -> dict[str, str]:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        content = "".join(str(part.get("text", "")) for part in content)
    if not isinstance(content, str) or not isinstance(message.get("role"), str):
        raise BadRequest("expected messages with a role and a text as content.", "messages")
    return {"role": message["role"], "content": content}


class Answer:
    """The answer to a request, as it comes."""

    def __init__(self, asked: Asked, text: Text, served: str, tokenizer: Any) -> None:
        self.asked, self._text, self._tokenizer = asked, text, tokenizer
        self._count, self._reason = 0, "length"
        self._head = {
            "id": f"{'chatcmpl' if asked.is_chat else 'cmpl'}-{uuid.uuid4().hex}",
            "object": "chat.completion" if asked.is_chat else "text_completion",
            "created": int(time.time()),
            "model": served,
        }

    def pieces(self) -> Iterator[str]:
        """Return pieces of text, up to the first stop."""
        stream, held = DecodeStream(skip_special_tokens=True), ""
        for word in self._text:
            self._count += 1
            if word in self.asked.wanted.ends:
                self._reason = "stop"
                break
            held += stream.step(self._tokenizer._tokenizer, word) or ""
            places = [place for stop in self.asked.stops if (place := held.find(stop)) >= 0]
            if places:
                self._reason, held = "stop", held[: min(places)]
                self._text.leave()
                break
            ready = len(held) - _may_be_a_stop(held, self.asked.stops)
            if ready:
                yield held[:ready]
                held = held[ready:]
            else:
                yield ""  # whoever writes it sees whether somebody still reads
        if held:
            yield held

    def whole(self, text: str) -> dict[str, Any]:
        """Return the body of an answer that comes at once."""
        said = {"message": {"role": "assistant", "content": text}} if self.asked.is_chat else {"text": text}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": self._reason}
        return {**self._head, "choices": [choice], "usage": self._usage()}

    def chunks(self) -> Iterator[dict[str, Any] | None]:
        """Return the chunks of a stream, and None where there is nothing to write yet."""
        if self.asked.is_chat:
            yield self._chunk({"delta": {"role": "assistant", "content": ""}})
        for piece in self.pieces():
            yield self._chunk(self._said(piece)) if piece else None
        last: dict[str, Any] = {"delta": {}} if self.asked.is_chat else {"text": ""}
        yield self._chunk(last, self._reason)
        if self.asked.tells_usage:
            yield {**self._chunk({}), "choices": [], "usage": self._usage()}

    def _said(self, piece: str) -> dict[str, Any]:
        return {"delta": {"content": piece}} if self.asked.is_chat else {"text": piece}

    def _chunk(self, said: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.asked.is_chat else "text_completion"
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": reason}
        return {**self._head, "object": kind, "choices": [choice]}

    def _usage(self) -> dict[str, Any]:
        prompt = len(self.asked.wanted.words)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self._count,
            "total_tokens": prompt + self._count,
            "prompt_tokens_details": {"cached_tokens": self._text.shared},
        }


def _may_be_a_stop(text: str, stops: tuple[str, ...]) -> int:
    """Return how many characters at the end may be the beginning of a stop."""
    longest = max((len(stop) for stop in stops), default=1) - 1
    sizes = range(min(longest, len(text)), 0, -1)
    return next((size for size in sizes if any(stop.startswith(text[-size:]) for stop in stops)), 0)
