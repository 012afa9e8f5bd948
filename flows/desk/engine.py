"""The process of a flow run, as the desk's worker starts it: Prefect's engine, at the head of a process group.

    python -m flows.desk.engine         # PREFECT__FLOW_RUN_ID names the run

Left to itself, the worker starts a process that prepares a workspace, and that then becomes the engine: Prefect is
imported twice, which is two seconds of a processor before anything runs.
"""

import os
import runpy


def main() -> None:
    if os.getpgid(0) != os.getpid():
        os.setsid()  # what is sent to the group of the worker is not meant for its flow runs
    runpy.run_module("prefect.engine", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
