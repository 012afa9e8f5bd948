"""Serve a GGUF file with llama.cpp on the loopback address, until standard input closes. A process of its own, so that
its memory and its crashes are too.

Run: python -m stages.export.serve MODEL.gguf --threads 2 --context 256

Prints one JSON line when the model is loaded: {"address": "http://127.0.0.1:PORT", "load_seconds": ...}. When whoever
started it dies, its end of the pipe closes and this process ends as well.
"""

import argparse
import json
import sys
import time
from pathlib import Path


def main() -> None:
    import xllamacpp

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context", type=int, required=True, help="tokens")
    arguments = parser.parse_args()
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(arguments.model)
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx = arguments.context
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = arguments.threads
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    parameters.fit_params = False
    parameters.ui = False
    started = time.perf_counter()
    server = xllamacpp.Server(parameters)
    print(json.dumps({"address": server.listening_address, "load_seconds": time.perf_counter() - started}), flush=True)
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
