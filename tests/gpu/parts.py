"""What only a GPU can show, part by part: `tests/gpu/run.sh`.

| part       | figure                                                                                              |
|------------|-----------------------------------------------------------------------------------------------------|
| equality   | largest relative difference of the loss over 20 steps, fp32: on the GPU against on the CPU           |
| speed      | MFU of a 1.2 B Llama at 4,096 tokens in bf16 with compile, against the measured matrix-product rate |
| memory     | its peak memory against the plan's                                                                  |
| float8     | its tokens per second in fp8 against bf16                                                           |
| torchtitan | our tokens per second against torchtitan's on the same model, where that is installed               |
| checkpoint | saves beside the training hold their own step, bit by bit; how long they hold it up                 |

Each part runs in a process of its own, and one that fails does not keep the others from running. The last line is one
JSON object.
"""

import json
import subprocess
import sys
import time
from typing import Any

PARTS = ("equality", "speed", "memory", "float8", "torchtitan", "checkpoint")
LIMIT_SECONDS = {"equality": 90, "speed": 150, "memory": 10, "float8": 120, "torchtitan": 120, "checkpoint": 60}
WANTED = {"mfu": 0.5, "ratio_float8_bf16": 1.15, "ratio_torchtitan": 1.0}


def main(parts: tuple[str, ...]) -> int:
    import torch

    assert torch.cuda.is_available(), "there is no GPU here"
    figures: dict[str, Any] = {"card": torch.cuda.get_device_name(), "torch": torch.__version__}
    failed = []
    for part in parts:
        began = time.perf_counter()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "tests.gpu.one_part", part, json.dumps(figures)],
                capture_output=True,
                text=True,
                timeout=LIMIT_SECONDS[part],
            )
            wrong = "" if done.returncode == 0 else (done.stdout + done.stderr)[-3000:]
        except subprocess.TimeoutExpired:
            wrong = f"took more than {LIMIT_SECONDS[part]} s"
        seconds = round(time.perf_counter() - began, 1)
        if wrong:
            failed.append(part)
            print(f"{part}: FAILED after {seconds} s\n{wrong}", flush=True)
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        figures |= found
        print(f"{part}: {found} in {seconds} s", flush=True)
    short = [name for name, wanted in WANTED.items() if name in figures and figures[name] < wanted]
    print(json.dumps({"bench": "gpu", "figures": figures, "failed": failed, "below_what_is_wanted": short}))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:]) or PARTS))
