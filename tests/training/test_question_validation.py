"""What counts as a right answer."""

import numpy as np
from sighted import job

from training.packing import NOTHING
from training.question_batches import run_job
from training.question_validation import answered_right


def test_an_answer_is_right_if_every_word_of_it_is() -> None:
    packed = run_job(job(3))
    assert (packed.kind >= 0).sum() > 4
    said = np.where(packed.labels != NOTHING, packed.labels, 1).astype(np.int32)
    assert (answered_right(packed, said) == (packed.kind >= 0)).all()
    question = packed.question[:, -packed.words.shape[1] :]
    for clip, word in np.argwhere(packed.labels != NOTHING):
        wrong = said.copy()
        wrong[clip, word] += 1
        right = answered_right(packed, wrong)
        assert not right[clip, question[clip, word]]
        assert right.sum() == (packed.kind >= 0).sum() - 1
