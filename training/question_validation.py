"""How many questions a language model in training answers right by now, about walks that it does not learn from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int32

from training.clip_store import ClipStore, Cut
from training.packing import KINDS, NOTHING, Packed, Shape
from training.question_batches import QuestionJob, run_job
from training.reading import Places, Reading

_CLIPS_AT_ONCE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationQuestions:
    """Clips of one length and the questions about them."""

    cut: Cut
    shape: Shape
    packed: Packed

    @classmethod
    def of(cls, cut: Cut, job: QuestionJob) -> "ValidationQuestions":
        return cls(cut=cut, shape=job.shape, packed=run_job(job))

    def parts(self) -> "list[ValidationQuestions]":
        """As many clips in each as are looked at in one go."""
        starts = range(0, len(self.cut.house), _CLIPS_AT_ONCE)
        return [self._some(slice(start, start + _CLIPS_AT_ONCE)) for start in starts]

    def _some(self, clips: slice) -> "ValidationQuestions":
        packed = self.packed
        return ValidationQuestions(
            cut=Cut(house=self.cut.house[clips], frame=self.cut.frame[clips]),
            shape=self.shape,
            packed=Packed(
                grid_frames=packed.grid_frames[clips],
                rows=packed.rows[clips],
                until=packed.until[clips],
                moment=packed.moment[clips],
                question=packed.question[clips],
                words=packed.words[clips],
                labels=packed.labels[clips],
                kind=packed.kind[clips],
                evident=packed.evident[clips],
            ),
        )


def accuracies(
    validation: Sequence[ValidationQuestions],
    store: ClipStore,
    reading: Callable[[Shape], Reading],
    device: torch.device,
) -> dict[str, float]:
    """Share of questions of each kind that are answered right, and the mean of these shares."""
    right, asked = np.zeros(len(KINDS), dtype=np.int64), np.zeros(len(KINDS), dtype=np.int64)
    for part in (part for questions in validation for part in questions.parts()):
        answered = _likeliest_words(part, store, reading(part.shape), device)
        is_right, kind = answered_right(part.packed, answered), part.packed.kind
        right += np.bincount(kind[is_right], minlength=len(KINDS))
        asked += np.bincount(kind[kind >= 0], minlength=len(KINDS))
    shares = {f"right_{kind}": right[at] / asked[at] for at, kind in enumerate(KINDS) if asked[at]}
    return {"right_all": float(np.mean(list(shares.values())))} | {name: float(share) for name, share in shares.items()}


@torch.no_grad()
def _likeliest_words(
    questions: ValidationQuestions, store: ClipStore, reading: Reading, device: torch.device
) -> Int32[np.ndarray, "clips words"]:
    """The likeliest word after each."""
    with torch.autocast(device.type, torch.bfloat16, cache_enabled=False), torch.compiler.set_stance("force_eager"):
        predicted = reading.predict(
            store.pairs(questions.cut, questions.packed.grid_frames), Places.of(questions.packed, device)
        )
    return predicted.logits.argmax(dim=-1).to(torch.int32).cpu().numpy()


def answered_right(packed: Packed, answered: Int32[np.ndarray, "clips words"]) -> Bool[np.ndarray, "clips questions"]:
    """Questions of whose answer every word, and its end, is the likeliest after the true ones before it."""
    question = packed.question[:, -packed.words.shape[1] :]
    is_right = packed.kind >= 0
    clip, word = np.nonzero((packed.labels != NOTHING) & (packed.labels != answered))
    is_right[clip, question[clip, word]] = False
    return is_right
