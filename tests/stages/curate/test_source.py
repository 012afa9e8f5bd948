"""What a source may say of itself."""

import pytest
from pydantic import ValidationError

from data.quality.rules import Preset
from stages.curate.source import Source


def test_quality_is_one_preset_or_several():
    assert Source(kind="text", path="a", domain="a", quality="code").presets("a") == (Preset.CODE,)
    several = Source(kind="text", path="a", domain="a", quality=["gopher-quality", "c4"])
    assert several.presets("a") == (Preset.GOPHER_QUALITY, Preset.C4)
    assert Source(kind="text", path="a", domain="a").presets("a") == (Preset.PROSE,)
    assert Source(kind="python-environment").presets("code") == (Preset.CODE,)
    assert Source(kind="text", path="a", domain="a", quality="none").presets("a") == ()
    # It survives being written as JSON, as a manifest holds it.
    assert Source.model_validate_json(several.model_dump_json()) == several


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "text", "quality": ["none", "c4"]}, "stand alone"),
        ({"kind": "text", "quality": []}, 'quality is empty; "none" stands for no rules'),
        ({"kind": "text", "quality": "best"}, "Input should be 'auto', 'prose'"),
        ({"kind": "html", "id_field": "url"}, "id_field has no effect on a source of kind html"),
        ({"kind": "warc", "text_field": "body"}, "text_field has no effect on a source of kind warc"),
        (
            {"kind": "warc", "group_field": "domain"},
            "group_field of a source of kind warc is url or host, not 'domain'",
        ),
        ({"kind": "warc", "id_field": "host"}, "id_field of a source of kind warc is url, not 'host'"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        Source(path="a", domain="a", **settings)
