"""Work on whole matrices that are sharded by rows or replicated, done once each and shared among the ranks.

Every rank gets whole matrices of its own: in turns the ranks that shard send each other their rows, so that each has
one matrix whole; it computes and sends the rows back. Groups that hold the same shards take different matrices and
tell each other what came out. What is computed for a matrix depends on the matrix alone, not on the layout.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup


@dataclass(frozen=True, kw_only=True)
class Team:
    """The ranks among which matrices are spread. shards: those that hold the rows of one copy, in the order of the
    rows; replicas: those that hold the same rows. None: this rank alone. device: where they compute and send."""

    shards: "ProcessGroup | None"
    replicas: "ProcessGroup | None"
    device: "torch.device"


def team_of(parameter: "torch.Tensor", *, is_replicated: bool) -> Team:
    """The team of a parameter and of all others like it. is_replicated: if it is no DTensor, whether every rank of the
    default group holds it."""
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor

    if not isinstance(parameter, DTensor):
        return Team(shards=None, replicas=dist.group.WORLD if is_replicated else None, device=parameter.device)
    mesh = parameter.device_mesh
    found: dict[bool, ProcessGroup] = {}
    for dimension, placement in enumerate(parameter.placements):
        assert placement.is_replicate() or placement.is_shard(0), f"not sharded by rows: {parameter.placements}"
        assert placement.is_shard() not in found, f"more than one dimension of a kind: {parameter.placements}"
        found[placement.is_shard()] = mesh.get_group(dimension)
    return Team(shards=found.get(True), replicas=found.get(False), device=torch.device(mesh.device_type))


def compute_whole(
    team: Team,
    parts: "Sequence[torch.Tensor]",
    shapes: Sequence[tuple[int, int]],
    compute: "Callable[[torch.Tensor], torch.Tensor]",
    dtype: "torch.dtype",
) -> "list[torch.Tensor]":
    """What `compute` makes of each matrix, which it gets whole, on the team's device and in `dtype`, and returns in the
    same shape: this rank's rows, in `dtype`, there. parts: this rank's rows of each; shapes: of the whole ones. All
    ranks of the team call it with the same shapes.
    """
    import torch

    found: list[torch.Tensor] = [torch.empty(0)] * len(parts)
    for chosen in _turns(shapes, _size(team.shards) * _size(team.replicas)):
        mine = [parts[index].to(team.device, dtype) for index in chosen]
        results = _one_each(team, mine, [shapes[index] for index in chosen], compute, dtype)
        for index, result in zip(chosen, results, strict=True):
            found[index] = result
    return found


def _turns(shapes: Sequence[tuple[int, int]], num_ranks: int) -> Iterator[list[int]]:
    """Matrices of one turn after the other, as many as there are ranks, those of like size together."""
    order = sorted(range(len(shapes)), key=lambda index: (-shapes[index][0] * shapes[index][1], index))
    for start in range(0, len(order), num_ranks):
        yield order[start : start + num_ranks]


def _one_each(
    team: Team,
    parts: "list[torch.Tensor]",
    shapes: list[tuple[int, int]],
    compute: "Callable[[torch.Tensor], torch.Tensor]",
    dtype: "torch.dtype",
) -> "list[torch.Tensor]":
    """One turn, in which matrix i is for shard rank i % shards of replica i // shards."""
    import torch

    num_shards, replica = _size(team.shards), _rank(team.replicas)
    results = [torch.empty_like(part) for part in parts]
    mine = slice(replica * num_shards, (replica + 1) * num_shards)
    if parts[mine]:
        results[mine] = _among_shards(team, parts[mine], shapes[mine], compute)
    if team.replicas is not None:
        import torch.distributed as dist

        for source in range(-(-len(parts) // num_shards)):
            theirs = slice(source * num_shards, (source + 1) * num_shards)
            sent = torch.cat([result.flatten() for result in results[theirs]])
            dist.broadcast(sent, group=team.replicas, group_src=source)
            pieces = sent.split([result.numel() for result in results[theirs]])
            results[theirs] = [piece.view_as(result) for piece, result in zip(pieces, results[theirs], strict=True)]
    return results


def _among_shards(
    team: Team,
    parts: "list[torch.Tensor]",
    shapes: list[tuple[int, int]],
    compute: "Callable[[torch.Tensor], torch.Tensor]",
) -> "list[torch.Tensor]":
    """One matrix for each of the first ranks that shard; the others get none."""
    import torch
    import torch.distributed as dist

    if team.shards is None:
        return [compute(parts[0])]
    rank, size = _rank(team.shards), _size(team.shards)
    outgoing = [part.numel() for part in parts] + [0] * (size - len(parts))
    rows, columns = shapes[rank] if rank < len(shapes) else (0, 0)
    incoming = [count * columns for count in rows_of_shards(rows, size)]
    whole = parts[0].new_empty(sum(incoming))
    dist.all_to_all_single(whole, torch.cat([part.flatten() for part in parts]), incoming, outgoing, group=team.shards)
    made = compute(whole.view(rows, columns)).flatten() if rank < len(shapes) else whole
    back = parts[0].new_empty(sum(outgoing))
    dist.all_to_all_single(back, made.contiguous(), outgoing, incoming, group=team.shards)
    return [piece.view_as(part) for piece, part in zip(back.split(outgoing[: len(parts)]), parts, strict=True)]


def rows_of_shards(rows: int, num_shards: int) -> list[int]:
    """How many rows each shard has: as torch cuts a tensor into chunks, the last ones may have none."""
    most = -(-rows // num_shards)
    ends = [min(end, rows) for end in accumulate([most] * num_shards)]
    return [end - min(number * most, rows) for number, end in enumerate(ends)]


def _size(group: "ProcessGroup | None") -> int:
    return 1 if group is None else group.size()


def _rank(group: "ProcessGroup | None") -> int:
    return 0 if group is None else group.rank()
