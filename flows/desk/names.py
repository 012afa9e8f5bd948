"""Names by which the parts of a desk, its server and its flow runs know one another. Nothing here imports Prefect."""

import platform

TAG = "longhaul"  # of what the desk keeps on a server, and of its flow runs
HEARTBEAT = "prefect.flow-run.heartbeat"  # the event by which a flow run says that it is alive
WORKER_LABEL = "prefect.worker.name"  # of a flow run: whose it was
FLOW_RUN = "PREFECT__FLOW_RUN_ID"  # in the environment of a flow run's process, and of all that this has started


def worker_name() -> str:
    """What the desk's worker on this machine is called."""
    return f"desk-{platform.node()}"
