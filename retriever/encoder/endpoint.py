"""An OpenAI-compatible endpoint for embeddings as an encoder: `openai:URL#MODEL`.

The key comes from the environment variable OPENAI_API_KEY. It is sent only to an address that the user named, either as
`encoder` or in OPENAI_BASE_URL, to OpenAI, and to this machine. A collection from somebody else can name any address,
and that address must not receive the key.
"""

import contextlib
import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NoReturn

from retriever.encoder.functions import ENDPOINT, FunctionEncoder
from retriever.encoder.model_files import EncoderIdentity
from retriever.errors import EncoderUnavailable, Misuse, first_line

KEY, BASE_URL = "OPENAI_API_KEY", "OPENAI_BASE_URL"
OPENAI = "api.openai.com"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
TIMEOUT = 30.0
"""Seconds that one request may take."""
PAUSES = (0.5, 2.0, 8.0)
"""Seconds before each further attempt, unless the endpoint asks for another time."""
LONGEST_PAUSE = 30.0
TRANSIENT = (408, 409, 429, 500, 502, 503, 504)
LARGEST_ANSWER = 256 << 20
READ_AT_ONCE = 1 << 16
# Requests in flight at once.
WORKERS = 4


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, because the key would go to another address."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Endpoint:
    """The address and the model of an endpoint. Calling it with texts returns a list of vectors."""

    def __init__(self, source: str, *, named: bool) -> None:
        """Parse `openai:URL#MODEL`. `named` is True if the user gave it, and False if it comes from a collection."""
        url, mark, self.model = source.removeprefix(ENDPOINT).partition("#")
        self.url = url.rstrip("/")
        try:
            parts = urllib.parse.urlsplit(self.url)
            host = parts.hostname or ""
        except ValueError:
            parts, host = urllib.parse.urlsplit(""), ""
        if parts.scheme not in ("http", "https") or not host or not mark or not self.model.strip():
            raise Misuse(
                f"{source!r} is not an endpoint; write openai:URL#MODEL, e.g. "
                "openai:https://api.openai.com/v1#text-embedding-3-small."
            )
        if parts.username or parts.password:
            raise Misuse(f"the address of the endpoint must not hold a password; put the key into {KEY}.")
        base = urllib.parse.urlsplit(os.environ.get(BASE_URL, "")).hostname
        self._may_have_key = named or host in (OPENAI, base, *LOOPBACK)
        self._encrypted = parts.scheme == "https" or host in LOOPBACK
        self._opener = urllib.request.build_opener(_NoRedirect)

    def __str__(self) -> str:
        return f"the endpoint {self.url}"

    def __call__(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of texts. Transient failures are tried again."""
        answer = self._answer(texts)
        try:
            rows = sorted(answer["data"], key=lambda row: int(row["index"]))
            if [row["index"] for row in rows] != list(range(len(texts))):
                raise ValueError
            vectors: list[list[float]] = [[float(number) for number in row["embedding"]] for row in rows]
        except (TypeError, KeyError, ValueError, AttributeError, OverflowError):
            self._fail(f"answered with something that is not {len(texts)} vectors: {str(answer)[:80]}")
        return vectors

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "flow-retriever"}
        key = os.environ.get(KEY, "").strip()
        if key and self._may_have_key:
            if not self._encrypted:
                raise Misuse(f"{self.url} is not encrypted, and {KEY} would be sent to it; use https, or unset {KEY}.")
            if not key.isascii() or not key.isprintable():
                raise Misuse(f"{KEY} holds characters that a key cannot have.")
            headers["Authorization"] = f"Bearer {key}"
        return headers

    def _answer(self, texts: list[str]) -> Any:
        body = json.dumps({"model": self.model, "input": texts, "encoding_format": "float"}).encode()
        request = urllib.request.Request(f"{self.url}/embeddings", body, self._headers())
        for pause in (*PAUSES, None):
            deadline = time.monotonic() + TIMEOUT
            try:
                with self._opener.open(request, timeout=TIMEOUT) as response:
                    data = self._body(response, deadline)
                return json.loads(data)
            except urllib.error.HTTPError as error:
                if error.code not in TRANSIENT or pause is None:
                    self._refuse(error)
                wait = _retry_after(error.headers.get("Retry-After")) or pause
            except TimeoutError:
                self._fail(f"did not answer within {TIMEOUT:g} seconds")
            except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
                self._fail(f"answered with something that is not JSON: {data[:80]!r}")
            except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
                reason = getattr(error, "reason", error)
                if isinstance(reason, TimeoutError):
                    self._fail(f"did not answer within {TIMEOUT:g} seconds")
                if isinstance(reason, ConnectionRefusedError) or pause is None:
                    self._fail(f"cannot be reached: {first_line(reason) or type(reason).__name__}")
                wait = pause
            time.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _body(self, response: http.client.HTTPResponse, deadline: float) -> bytes:
        """Read an answer. The timeout of the connection does not limit an answer that arrives byte by byte."""
        data = bytearray()
        while part := response.read1(READ_AT_ONCE):
            data += part
            if len(data) > LARGEST_ANSWER:
                self._fail(f"answered with more than {LARGEST_ANSWER >> 20} MiB")
            if time.monotonic() > deadline:
                raise TimeoutError
        if response.length:
            raise http.client.IncompleteRead(bytes(data), response.length)
        return bytes(data)

    def _refuse(self, error: urllib.error.HTTPError) -> NoReturn:
        try:
            told = error.read(2000).decode("utf-8", "replace").strip()
        except OSError:
            told = ""
        with contextlib.suppress(ValueError, KeyError, TypeError):
            told = str(json.loads(told)["error"]["message"])
        advice = ""
        if error.code in (401, 403):
            if not os.environ.get(KEY, "").strip():
                advice = f" Set {KEY} to a key for it."
            elif not self._may_have_key:
                advice = (
                    f" {KEY} was not sent, because the address comes from the collection. If you trust it, give "
                    f'`encoder="{ENDPOINT}{self.url}#{self.model}"`.'
                )
        elif 300 <= error.code < 400:
            advice = f" It redirects to {error.headers.get('Location')}; give that address as `encoder` if it is right."
        self._fail(f"refused the request ({error.code} {error.reason}){f': {told[:200]}' if told else ''}", advice)

    def _fail(self, what: str, advice: str = "") -> NoReturn:
        raise EncoderUnavailable(
            f'{self} {what}. Documents stored so far are kept.{advice} Without it, search by words: `mode="lexical"`.'
        )


class EndpointEncoder(FunctionEncoder):
    """An encoder that asks an endpoint."""

    def __init__(
        self,
        source: str,
        *,
        named: bool,
        max_length: int | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        stored: EncoderIdentity | None = None,
    ) -> None:
        endpoint = Endpoint(source, named=named)
        self._endpoint = endpoint
        super().__init__(
            endpoint,
            f"{ENDPOINT}{endpoint.url}#{endpoint.model}",
            max_length=max_length,
            query_prompt=query_prompt,
            document_prompt=document_prompt,
            stored=stored,
            workers=WORKERS,
        )

    def __str__(self) -> str:
        return str(self._endpoint)


def _retry_after(header: str | None) -> float:
    """Return the seconds that the endpoint asks to wait, or 0."""
    try:
        return min(LONGEST_PAUSE, max(0.0, float(header or 0)))
    except ValueError:
        return 0.0
