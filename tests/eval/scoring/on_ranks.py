"""What three ranks do: run by torchrun, writes what rank 0 and rank 1 found to the file that is named."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from eval.scoring.ranks import RankedScorer, RankError
from eval.scoring.scorer import Scorer
from tests.eval.harness.judged import ask, characters
from tests.eval.stubs import END, BigramModel


class Meeting(BigramModel):
    """All ranks meet in every forward pass, as the parts of a model do that is sharded over them."""

    def logits(self, tokens: Tensor, keep: int) -> Tensor:
        dist.all_reduce(torch.ones(1))
        return super().logits(tokens, keep)


class Failing(BigramModel):
    def logits(self, tokens: Tensor, keep: int) -> Tensor:
        if dist.get_rank() == 1:
            raise OSError("this rank's memory is broken")
        return super().logits(tokens, keep)


def main(out: Path) -> None:
    dist.init_process_group("gloo")
    group = dist.group.WORLD
    size = characters().size

    def scorer(kind: type[BigramModel]) -> RankedScorer:
        return RankedScorer(kind(size, max_length=512), group=group, prefix_token=END, batch_tokens=200)

    requests = [([3, 4, 5 + i % 3], [7 + i % 5] * (1 + i % 4)) for i in range(28)]
    contexts = [[3 + i] for i in range(7)]
    found = {
        "scores": [score.log_likelihood for score in scorer(Meeting).score(requests)],
        "greedy": [score.is_greedy for score in scorer(Meeting).score(requests)],
        "one": [score.log_likelihood for score in scorer(Meeting).score(requests[:1])],
        "none": len(scorer(Meeting).score([])),
        "texts": scorer(BigramModel).generate(contexts, max_new_tokens=4, temperature=1.0),
        "task": ask(scorer(Meeting), out.parent / str(dist.get_rank())),
    }
    try:
        scorer(Failing).score(requests)
    except (OSError, RankError) as error:
        found["failure"] = type(error).__name__
    if dist.get_rank() < 2:
        (out / f"{dist.get_rank()}.json").write_text(json.dumps(found))
    if dist.get_rank() == 0:
        alone = Scorer(BigramModel(size, max_length=512), prefix_token=END)
        expected = {
            "scores": [score.log_likelihood for score in alone.score(requests)],
            "greedy": [score.is_greedy for score in alone.score(requests)],
            "texts": alone.generate(contexts, max_new_tokens=4, temperature=1.0),
            "task": ask(alone, out.parent / "alone"),
        }
        (out / "alone.json").write_text(json.dumps(expected))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
