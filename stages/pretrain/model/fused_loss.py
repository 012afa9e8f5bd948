"""Cross-entropy over a vocabulary, computed with its gradients, so that scores are never held whole.

Scores of a few tokens at a time are made, turned into gradients of the hidden states and of the output matrix in the
forward pass already, and dropped (Hsu et al., 2024, "Liger Kernel: Efficient Triton Kernels for LLM Training", section
3.2). The backward pass only multiplies by the gradient of the sum. Beside the gradients themselves, which any backward
pass makes, no more than `chunk_tokens` rows of scores are held.
"""

from typing import Any

import torch

from data.order.loader import IGNORE
from stages.pretrain.model.loss import Scoring


def summed_losses(
    hidden: torch.Tensor, matrix: torch.Tensor, targets: torch.Tensor, *, scoring: Scoring, divisor: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """(objective, loss): float32 scalars. loss: cross-entropy in nats, summed over the targets that are not IGNORE; it
    has no gradient. objective: loss + z_loss x the sum of the squares of log Z, where Z is the softmax's denominator
    (Chowdhery et al., 2022, "PaLM: Scaling Language Modeling with Pathways", section 5).

    hidden: [..., width]; matrix: [rows, width]; targets: int64[...]. Scores are hidden x matrix / divisor, with matrix
    products in the type of `hidden`, or in that of autocast where it is on, and everything else in float32. Without a
    single target both are 0, and so are the gradients.
    """
    assert scoring.vocabulary_size <= len(matrix), "the output matrix has a row for each token"
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    learns = torch.is_grad_enabled() and (hidden.requires_grad or matrix.requires_grad)
    with torch.autocast(device, enabled=False):
        objective, loss = SummedLosses.apply(
            hidden.flatten(0, -2), matrix, targets.flatten(), scoring, divisor, dtype, learns
        )
    return objective, loss


class SummedLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        matrix: torch.Tensor,
        targets: torch.Tensor,
        scoring: Scoring,
        divisor: float,
        dtype: torch.dtype,
        learns: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows = matrix[: scoring.vocabulary_size].to(dtype)
        # Sums over many tokens, so float32 whatever the products are computed in.
        of_matrix = torch.zeros(matrix.shape, dtype=torch.float32, device=matrix.device) if learns else None
        of_hidden = torch.empty_like(hidden) if learns else None
        objective = loss = torch.zeros((), dtype=torch.float64, device=hidden.device)
        for first in range(0, len(hidden), scoring.chunk_tokens):
            part = slice(first, first + scoring.chunk_tokens)
            states = hidden[part].to(dtype)
            scores = torch.mm(states, rows.t()).float()
            loss_part, squares = score(scores, targets[part], divisor=divisor, z_loss=scoring.z_loss)
            loss = loss + loss_part
            objective = objective + loss_part + scoring.z_loss * squares
            if of_matrix is not None and of_hidden is not None:
                gradient = scores.to(dtype)
                if of_hidden.dtype == dtype:
                    torch.mm(gradient, rows, out=of_hidden[part])
                else:
                    of_hidden[part] = torch.mm(gradient, rows)
                used = of_matrix[: len(rows)]
                if dtype == torch.float32:
                    used.addmm_(gradient.t(), states)
                else:
                    used += torch.mm(gradient.t(), states)
                del gradient
            del scores  # before the next ones are made
        if of_matrix is not None and of_hidden is not None:
            ctx.save_for_backward(of_hidden, of_matrix)
        ctx.matrix_dtype = matrix.dtype
        objective, loss = objective.float(), loss.float()
        ctx.mark_non_differentiable(loss)
        return objective, loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, by: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # In place, as nobody else holds them; a second backward pass through the same graph is an error of torch's.
        of_hidden, of_matrix = ctx.saved_tensors
        of_matrix = of_matrix.mul_(by).to(ctx.matrix_dtype)
        return of_hidden.mul_(by), of_matrix, None, None, None, None, None


def score(
    scores: torch.Tensor, targets: torch.Tensor, *, divisor: float, z_loss: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """float64 scalars: the cross-entropy of softmax(scores / divisor), and the squares of log Z, each summed over the
    targets that are not IGNORE. scores: float32[tokens, vocabulary]; the gradients of the objective with respect to
    them take their place."""
    if divisor != 1.0:
        scores /= divisor
    counts = targets != IGNORE
    places = targets.clamp(min=0)[:, None]
    highest = scores.amax(-1, keepdim=True)
    scores -= highest
    of_target = scores.gather(1, places)
    total = scores.exp_().sum(-1, keepdim=True)
    log_total = total.log()
    log_z = log_total + highest
    weight = counts[:, None].to(scores.dtype) / divisor
    loss = torch.where(counts[:, None], log_total - of_target, 0.0).sum(dtype=torch.float64)
    squares = torch.where(counts[:, None], log_z.square(), 0.0).sum(dtype=torch.float64)
    scores *= weight * (1.0 + 2.0 * z_loss * log_z) / total
    scores.scatter_(1, places, scores.gather(1, places) - weight)
    return loss, squares
