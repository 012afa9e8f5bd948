"""The environments of the trainers that `make bench-train` compares with; see peers/environments.py."""

from tests.benchmarks.peers.environments import Peer

TORCH = "torch==2.13.0"
LITGPT = Peer(
    name="litgpt",
    title="litgpt",
    settings="compiled as a whole, as it always is",
    # litdata asks for torchvision, of which pip finds no build for a torch without CUDA: what imports it then fails.
    installs=(
        (TORCH,),
        ("--no-deps", "litdata==0.2.76"),
        ("litgpt==0.5.13", TORCH, "boto3", "obstore", "requests==2.34.2", "tifffile"),
    ),
)
TORCHTITAN = Peer(
    name="torchtitan",
    title="torchtitan",
    settings="FSDP2, with what it lacks on a CPU put in",
    installs=((TORCH,), ("torchtitan==0.3.0", TORCH, "triton==3.9.0")),
)
