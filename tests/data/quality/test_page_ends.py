"""No kernel of judging, scrubbing, language or reading reads behind the last byte of a column, whatever its length."""

import numpy as np
import pyarrow as pa
import pytest

from data.language.identification import identify_column
from data.pii.kinds import PiiKind
from data.pii.scrub import scrub
from data.quality.classifier import Classifier
from data.quality.judgement import measures
from data.reading.pieces import own_groups
from data.reading.tables import text_buffers
from tests.data.text.guarded import guarded

ENDS = (
    "",
    "word",
    "a" * 64,
    "1" * 20,
    "a@b.c",
    "-----BEGIN ",
    "eyJ",
    "1.1.1.",
    "é",
    "語",
    "🙂",
    "Mr.",
    "[",
    "use cook",
)


@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_read_behind_the_end(end):
    classifier = Classifier(bits=4, bias=0.0, weights=np.zeros(16, np.float32), report={})
    for length in (0, 1, 7, 8, 9, 55, 63, 64, 65, 130):
        texts = ["x y " * 40, ("ab " * 100)[:length] + end, ""]
        apart, plain = guarded(texts), pa.array(texts, pa.large_string())
        assert apart.to_pylist() == texts
        found, expected = measures(apart), measures(plain)
        assert {name: value.tolist() for name, value in found.items()} == {
            name: value.tolist() for name, value in expected.items()
        }
        assert scrub(apart, tuple(PiiKind)).texts.equals(scrub(plain, tuple(PiiKind)).texts)
        assert identify_column(apart)[0].equals(identify_column(plain)[0])
        assert classifier.score(apart).tolist() == classifier.score(plain).tolist()
        assert own_groups(apart).equals(own_groups(plain))
        assert text_buffers(apart)[0].size == sum(len(text.encode()) for text in texts)
