"""How many bands and rows are taken, and that settings which find too little are refused."""

import pytest

from data.dedup.banding import LEAST_RECALL, MOST_HASHES, NearDuplicateSettings, bands_and_rows, expected_recall
from data.errors import InputError


@pytest.mark.parametrize(
    ("threshold", "recall", "shape"),
    [(0.8, 0.99, (16, 6)), (0.75, 0.99, (17, 5)), (0.7, 0.99, (17, 4)), (0.8, 0.9, (13, 8)), (1.0, 0.99, (1, 128))],
)
def test_bands_and_rows_follow_from_the_recall(threshold, recall, shape):
    settings = NearDuplicateSettings(threshold=threshold, recall=recall)
    assert (settings.bands, settings.rows) == shape and settings.expected_recall >= recall


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7, 0.8, 0.9])
@pytest.mark.parametrize("recall", [0.5, 0.9, 0.99])
def test_the_rule_takes_the_most_rows_and_the_fewest_bands_of_its_budget(threshold, recall):
    bands, rows = bands_and_rows(threshold, recall)
    assert bands * rows <= MOST_HASHES and expected_recall(threshold, bands, rows) >= recall
    assert bands == 1 or expected_recall(threshold, bands - 1, rows) < recall
    assert expected_recall(threshold, MOST_HASHES // (rows + 1), rows + 1) < recall


@pytest.mark.parametrize(("bands", "rows"), [(13, 60), (1, 8), (14, 20)])
def test_settings_that_find_too_little_are_refused_with_their_expected_recall(bands, rows):
    with pytest.raises(
        InputError, match=f"{bands} bands of {rows} rows find a pair at the threshold 0.8 with probability 0"
    ):
        NearDuplicateSettings.explicit(bands=bands, rows=rows)


def test_settings_given_explicitly_say_what_is_expected_of_them():
    settings = NearDuplicateSettings.explicit(bands=60, rows=13)
    assert (settings.bands, settings.rows, settings.num_hashes) == (60, 13, 780)
    assert settings.recall == settings.expected_recall == pytest.approx(0.9666, abs=1e-3)
    assert "60 bands of 13 rows are expected to find 0.96" in settings.describe()
    assert settings == NearDuplicateSettings.explicit(bands=60, rows=13) != NearDuplicateSettings()


def test_explicit_settings_need_not_follow_the_rule():
    settings = NearDuplicateSettings.explicit(threshold=0.02, bands=200, rows=1)
    assert (settings.bands, settings.rows) == (200, 1) and settings.expected_recall > 0.98


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bands": 3, "rows": 0}, "at least one of each"),
        ({"bands": 2, "rows": -1}, "at least one of each"),
        ({"bands": 0, "rows": 3}, "at least one of each"),
        ({"bands": 16, "rows": 6, "threshold": 1.5}, "threshold must be above 0"),
    ],
)
def test_explicit_settings_that_cannot_be_are_refused(values, message):
    with pytest.raises(InputError, match=message):
        NearDuplicateSettings.explicit(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"recall": 0.3}, f"at least {LEAST_RECALL:g}"),
        ({"recall": 1.0}, "below 1"),
        ({"threshold": 0.02}, "raise the threshold or lower the recall"),
        ({"threshold": 0.0}, "threshold must be above 0"),
        ({"ngram_words": 0}, "n-gram"),
    ],
)
def test_settings_that_cannot_be_met_are_refused(values, message):
    with pytest.raises(InputError, match=message):
        NearDuplicateSettings(**values)
