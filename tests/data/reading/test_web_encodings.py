"""Characters of web pages: whatever the page was written in, and whatever it claims."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.reading.encodings import MOST_REPLACED, decode_page

RUSSIAN = "Это обычный русский текст о погоде, который никто не читает."
JAPANESE = "これは日本語の文章です。天気が良いので散歩に行きました。"
CHINESE = "这是一个关于天气的普通中文文本，没有人会读它。"
TRADITIONAL = "這是一篇關於天氣的普通中文文章，沒有人會讀它。"
KOREAN = "오늘은 날씨가 매우 좋습니다. 우리는 공원에 갔습니다."
FRENCH = "Voilà un texte français déjà écrit, où l’été s’achève…"
THAI = "วันนี้อากาศดีมาก เราไปเดินเล่นในสวนสาธารณะ"
PAGE = "<html><head><title>x</title></head><body><p>{}</p></body></html>"

WRITTEN = [
    (RUSSIAN, "windows-1251"),
    (RUSSIAN, "koi8-r"),
    (RUSSIAN, "iso-8859-5"),
    (JAPANESE, "shift_jis"),
    (JAPANESE, "euc-jp"),
    (JAPANESE, "iso-2022-jp"),
    (CHINESE, "gb2312"),
    (CHINESE, "gb18030"),
    (TRADITIONAL, "big5"),
    (KOREAN, "euc-kr"),
    (FRENCH, "windows-1252"),
    (THAI, "tis-620"),
    (FRENCH, "utf-16-le"),
    (RUSSIAN, "utf-16-be"),
    (KOREAN, "utf-8"),
]


@pytest.mark.parametrize(("text", "charset"), WRITTEN)
def test_a_declared_charset_is_used(text, charset):
    page = PAGE.format(text * 3).encode(charset)
    assert text in decode_page(page, charset).text
    declared = PAGE.replace("<head>", f'<head><meta charset="{charset}">').format(text * 3).encode(charset)
    assert text in decode_page(declared).text
    if "utf-16" not in charset:  # whose declaration cannot be read before it is known
        xml = f'<?xml version="1.0" encoding="{charset}"?>'.encode() + page
        assert text in decode_page(xml).text


@pytest.mark.parametrize(("text", "charset"), [pair for pair in WRITTEN if pair[1] not in ("iso-8859-5", "gb2312")])
def test_what_is_not_declared_is_guessed(text, charset):
    assert text in decode_page(PAGE.format(text * 5).encode(charset)).text


@pytest.mark.parametrize("charset", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_is_believed_before_anything_else(charset):
    found = decode_page(PAGE.format(JAPANESE).encode(charset), "shift_jis")
    assert found.text == PAGE.format(JAPANESE)


@pytest.mark.parametrize(
    "claimed", ["iso-8859-1", "windows-1251", "shift_jis", "no-such-charset", "rot13", "utf-16", ""]
)
def test_valid_utf8_is_utf8_whatever_the_page_claims(claimed):
    page = PAGE.replace("<head>", f'<head><meta charset="{claimed}">').format(FRENCH).encode()
    assert decode_page(page, claimed).text == page.decode()


def test_latin_1_means_what_browsers_take_it_for():
    assert decode_page(PAGE.format("“quoted” – 5 €").encode("cp1252"), "ISO-8859-1").text == PAGE.format(
        "“quoted” – 5 €"
    )


def test_a_bad_byte_in_a_long_page_is_replaced_and_counted_and_many_are_refused():
    for text in (RUSSIAN, FRENCH):
        page = PAGE.format(text * 50).encode()
        found = decode_page(page[:200] + b"\xff" + page[200:], "iso-8859-1")
        assert found.num_replaced == 1 and found.encoding == "utf-8"
    assert decode_page(bytes(range(0x80, 0x100)) * 20 + b"\xff\x81\x8d" * 100, "utf-8") is None


@given(
    st.binary(max_size=300),
    st.sampled_from([None, "utf-8", "shift_jis", "iso-2022-jp", "utf-16", "hz-gb-2312", "utf-7", "x"]),
)
@settings(max_examples=300, deadline=None)
def test_any_bytes_decode_or_are_refused(content, charset):
    found = decode_page(content, charset)
    if found is not None:
        assert found.num_replaced <= MOST_REPLACED * len(found.text)
