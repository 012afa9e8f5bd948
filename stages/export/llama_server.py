"""A client of `stages.export.serve`: what llama.cpp makes of a GGUF file."""

import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from stages.errors import TryAgain
from stages.export.gate import GreedyComparison
from stages.export.generate import Continuation

# As a file, and with nothing beside it on the module path: by its name it would import all of stages.export first.
SERVE = Path(__file__).with_name("serve.py")
STOP_SECONDS = 5.0
POLL_SECONDS = 0.01
KILLED = (-signal.SIGKILL, -signal.SIGTERM)  # by an operator, or for want of memory: not the file's fault
LOG_TAIL_BYTES = 2000


class LlamaServer:
    """llama.cpp with one model, for the time of a `with` block. Every call must end before `seconds` have passed since
    the start, else TryAgain.

    Raises RuntimeError, with the end of llama.cpp's log, if the file cannot be loaded.
    """

    def __init__(self, model: Path, *, threads: int, context: int, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._model = model
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the server
        command = [sys.executable, "-P", str(SERVE), str(model)]
        command += ["--threads", str(threads), "--context", str(context)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log)
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({})
        )  # loopback never goes through a proxy
        self._address = ""
        self.load_seconds = 0.0

    def __enter__(self) -> Self:
        try:
            ready = json.loads(self._first_line())
            self._address, self.load_seconds = ready["address"], float(ready["load_seconds"])
            return self
        except BaseException:
            self.close()
            raise

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server, by force if it does not leave by itself or its time is up."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(min(STOP_SECONDS, max(0.0, self._deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def tokenize(self, text: str) -> list[int]:
        """Ids that llama.cpp's tokenizer gives, special tokens in the text read as text."""
        return self._post("/tokenize", {"content": text, "add_special": True, "parse_special": False})["tokens"]

    def next_token(self, tokens: Sequence[int]) -> int:
        """The most likely token after `tokens`."""
        settings = {"prompt": list(tokens), "n_predict": 1, "temperature": 0.0, "return_tokens": True}
        (token,) = self._post("/completion", settings)["tokens"]
        return int(token)

    def tokens_per_second(self, prompt: Sequence[int], num_tokens: int) -> float:
        """Speed of greedy generation of `num_tokens` tokens for one request, as llama.cpp times it, the prompt left
        out.
        """
        settings = {
            "prompt": list(prompt),
            "n_predict": num_tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            "cache_prompt": False,
        }
        return float(self._post("/completion", settings)["timings"]["predicted_per_second"])

    def _first_line(self) -> bytes:
        from threading import Thread

        found: list[bytes] = []
        reader = Thread(target=lambda pipe: found.append(pipe.readline()), args=(self._process.stdout,), daemon=True)
        reader.start()
        reader.join(max(0.0, self._deadline - time.monotonic()))
        if not found:
            raise TryAgain(f"llama.cpp did not load {self._model.name} in time; set export.server_seconds higher")
        if not found[0] and self._process.wait(STOP_SECONDS) in KILLED:
            raise TryAgain(f"llama.cpp was killed while it loaded {self._model.name}")
        if not found[0]:
            raise RuntimeError(f"llama.cpp cannot load {self._model.name}:\n{self._log_tail()}")
        return found[0]

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            self._address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with self._opener.open(request, timeout=max(POLL_SECONDS, self._deadline - time.monotonic())) as answer:
                return json.load(answer)
        except TimeoutError:
            raise TryAgain(
                f"llama.cpp did not answer for {self._model.name} in time; set export.server_seconds higher"
            ) from None

    def _log_tail(self) -> str:
        self._log.seek(0, 2)
        self._log.seek(max(0, self._log.tell() - LOG_TAIL_BYTES))
        return self._log.read().decode(errors="replace")


def compare_greedy(
    server: LlamaServer, prompts: Sequence[Sequence[int]], reference: Sequence[Continuation]
) -> GreedyComparison:
    """llama.cpp's next token at every position of the reference continuations of `prompts`, given the reference's
    tokens before it.
    """
    compared = equal = excluded = 0
    for prompt, continuation in zip(prompts, reference, strict=True):
        for i, (token, clear) in enumerate(zip(continuation.tokens, continuation.clear, strict=True)):
            if not clear:
                excluded += 1
                continue
            compared += 1
            equal += server.next_token([*prompt, *continuation.tokens[:i]]) == token
    return GreedyComparison(compared=compared, equal=equal, excluded=excluded)
