"""Who survives among duplicates."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from data.dedup.ranking import rank


@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.booleans(),
            st.sampled_from([0, 0.5, 0.5 + 1e-9]),
            st.sampled_from([0, 1, 2, 2**33]),  # more bits than there is room for
            *[st.sampled_from([0, 1, 2, 2**63, 2**63 + 1])] * 2,
        ),
        max_size=20,
    ),
    st.data(),
)
@settings(max_examples=100, deadline=None)
def test_the_rank_is_that_of_a_plain_sort(documents, data):
    ids = data.draw(st.permutations([f"id {i}" for i in range(len(documents))]))
    columns = np.array([document[:4] for document in documents]).reshape(-1, 4).T
    found = rank(
        known=columns[0].astype(bool),
        heldout=columns[1].astype(bool),
        quality=columns[2],
        num_bytes=columns[3].astype(np.int64),
        fingerprints=np.array([document[4:] for document in documents], np.uint64).reshape(-1, 2),
        ids=lambda rows: pa.array(ids, pa.string()).take(pa.array(rows)),
    )
    plain = [
        (not known, not heldout, -round(quality, 6), -size, first, second, name)
        for (known, heldout, quality, size, first, second), name in zip(documents, ids, strict=True)
    ]
    assert found.tolist() == [sorted(plain).index(document) for document in plain]
