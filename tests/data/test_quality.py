"""Quality rules: each threshold means what its name says, and no script is judged by rules made for another."""

import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data.quality import REPEATED_NGRAMS, TOP_NGRAMS, judge, measures
from data.quality_rules import RULES, Preset

PARAGRAPHS = {
    "en": "The old library at the edge of the town had stood empty for many years before anyone thought of "
    "opening its doors again. When the first visitors came, they found shelves of careful notes about "
    "weather, harvests and the people who had lived nearby. Nobody could say who had written them, or "
    "why they were kept.",
    "ru": "Старая библиотека на окраине города много лет стояла "
    "пустой, прежде чем кто-то решил снова открыть её двери. "
    "Когда пришли первые посетители, они увидели полки с "
    "подробными записями о погоде, урожаях и людях, живших "
    "поблизости. Никто не мог сказать, кто их написал и "
    "зачем их хранили так долго.",
    "ar": "ظلت المكتبة القديمة عند طرف المدينة خالية لسنوات طويلة قبل أن يفكر أحد في فتح أبوابها من جديد. وحين "
    "جاء الزوار الأوائل وجدوا رفوفا من الملاحظات الدقيقة عن الطقس والحصاد والناس الذين عاشوا بالقرب "
    "منها. لم يستطع أحد أن يقول من كتبها ولا لماذا حفظت كل هذا الوقت الطويل.",
    "hi": "शहर के किनारे वाला पुराना पुस्तकालय कई वर्षों तक खाली पड़ा रहा, इससे पहले कि किसी ने उसके दरवाज़े "
    "फिर खोलने की सोची। जब पहले आगंतुक आए तो उन्हें मौसम, फसलों और आसपास रहने वाले लोगों के बारे में "
    "ध्यान से लिखे गए नोट मिले। कोई नहीं बता सका कि उन्हें किसने लिखा था और क्यों सँभालकर रखा गया।",
    "ko": "마을 끝에 있는 오래된 도서관은 누군가 다시 문을 열 생각을 하기 전까지 여러 해 동안 비어 있었다. 첫 "
    "방문객들이 왔을 때 그들은 날씨와 수확과 근처에 살던 사람들에 대해 꼼꼼하게 적은 기록이 가득한 "
    "선반을 발견했다. 누가 그것을 썼는지, 왜 그렇게 오래 보관했는지는 아무도 말하지 못했다.",
    "zh": "镇子边上的旧图书馆空了许多年，才有人想到重新打开它的大门。第一批访客到来时，他们看到书架上摆满了关于"
    "天气、收成和附近居民的细致记录。没有人能说出是谁写下了这些，也没有人知道为什么要把它们保存这么久。后"
    "来一位老教师把它们一页一页抄了下来，送给了每一所学校。",
    "ja": "町はずれの古い図書館は、誰かが再び扉を開けようと思うまで何年も空いたままだった。最初の訪問者が来たと"
    "き、彼らは天気や収穫や近くに住んでいた人々についての丁寧な記録が並ぶ棚を見つけた。誰がそれを書いたの"
    "か、なぜ長く保管されていたのかは誰にもわからなかった。",
    "th": "ห้องสมุดเก่าที่ชายเมืองว่างเปล่ามานานหลายปีก่อนที่จะมีใครคิดเปิดประตูอีกครั้ง เมื่อผู้มาเยือนกลุ่มแร"
    "กมาถึง พวกเขาพบชั้นหนังสือที่เต็มไปด้วยบันทึกอย่างละเอียดเกี่ยวกับสภาพอากาศ การเก็บเกี่ยว และผู้คนที"
    "่เคยอาศัยอยู่ใกล้เคียง ไม่มีใครบอกได้ว่าใครเป็นผู้เขียน",
}


def column(*texts: str) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def broken(text: str, preset: Preset) -> str | None:
    """The name of the first rule that a text breaks."""
    rule = int(judge(column(text), preset).rule[0])
    return RULES[preset][rule].name if rule >= 0 else None


def value(text: str, measure: str) -> float:
    return float(measures(column(text))[measure][0])


def test_clean_text_of_every_script_is_kept_and_what_has_no_words_is_not_judged():
    verdict = judge(column(*PARAGRAPHS.values()), Preset.PROSE)
    assert (verdict.rule == -1).all()
    judged = dict(zip(PARAGRAPHS, verdict.judged.tolist(), strict=True))
    assert judged == {"en": True, "ru": True, "ar": True, "hi": True, "ko": True, "zh": False, "ja": False, "th": False}


def test_english_with_a_few_foreign_words_is_judged():
    text = "The word 図書館 means library. " + "again and " * 60
    assert judge(column(text), Preset.PROSE).judged.all() and broken(text, Preset.PROSE) is not None


def distinct(count: int, length: int = 5) -> list[str]:
    """Words that never repeat, of one length."""
    letters = "abcdefghij"
    return ["".join(letters[int(digit)] for digit in f"{i:0{length}}") for i in range(count)]


def words_with_letters(share: int) -> str:
    return " ".join(distinct(share) + [f"{i:05}" for i in range(100 - share)])


def with_words(count: int) -> str:
    return " ".join(distinct(count, 6))


def with_length(tenths: int) -> str:
    long = tenths // 10 + 1
    extra = tenths % 10
    return " ".join(
        [w for i in range(10) for w in distinct(100, long if i < extra else long - 1)[10 * i : 10 * i + 10]]
    )


def with_marks(mark: str, count: int) -> str:
    return " ".join([*distinct(1000 - count), *[word + mark for word in distinct(1000)[-count:]]])


def with_lines(*, repeated: int, total: int = 10) -> str:
    first = distinct(40)[:4]
    unique = [" ".join(distinct(1000)[100 + 4 * i : 104 + 4 * i]) for i in range(total - repeated - 1)]
    return "\n".join([" ".join(first)] * (repeated + 1) + unique)


@pytest.mark.parametrize(
    ("measure", "name", "dropped", "at", "kept"),
    [
        ("words", "least words", with_words(29), with_words(30), with_words(31)),
        ("words", "most words", with_words(100_001), with_words(100_000), with_words(99_999)),
        ("mean word length", "least mean word length", with_length(29), with_length(30), with_length(31)),
        ("mean word length", "most mean word length", with_length(101), with_length(100), with_length(99)),
        (
            "hash marks per word",
            "most hash marks per word",
            with_marks("#", 101),
            with_marks("#", 100),
            with_marks("#", 99),
        ),
        (
            "ellipses per word",
            "most ellipses per word",
            with_marks("…", 101),
            with_marks("...", 100),
            with_marks("…", 99),
        ),
        (
            "share of words with a letter",
            "least share of words with a letter",
            words_with_letters(79),
            words_with_letters(80),
            words_with_letters(81),
        ),
        (
            "share of repeated lines",
            "most share of repeated lines",
            with_lines(repeated=31, total=100),
            with_lines(repeated=30, total=100),
            with_lines(repeated=29, total=100),
        ),
    ],
)
def test_a_threshold_keeps_what_is_at_it_and_drops_beyond_it(measure, name, dropped, at, kept):
    rule = next(rule for rule in RULES[Preset.PROSE] if rule.name == name)
    assert value(at, measure) == pytest.approx(rule.bound)
    if rule.kind == "least":
        assert value(dropped, measure) < rule.bound < value(kept, measure)
    else:
        assert value(dropped, measure) > rule.bound > value(kept, measure)
    assert broken(dropped, Preset.PROSE) == name
    assert name not in {broken(at, Preset.PROSE), broken(kept, Preset.PROSE)}


def test_every_rule_of_every_preset_has_a_measure_and_can_drop():
    measured = measures(column("x"))
    for preset, rules in RULES.items():
        assert len({rule.name for rule in rules}) == len(rules), preset
        assert all(rule.measure in measured for rule in rules)


def test_digits_only_is_dropped_for_prose():
    assert broken(" ".join(f"{i:05}" for i in range(200)), Preset.PROSE) == "least share of words with a letter"


def test_code_is_not_judged_by_rules_for_prose():
    code = "import os\n\n\n" + "\n".join(f"def f{i}(x, y):\n    return x[{i}] + y * {i}  # {i}\n" for i in range(30))
    assert broken(code, Preset.PROSE) is not None
    assert broken(code, Preset.CODE) is None and broken(code, Preset.NONE) is None
    assert broken("data = '" + "ab12" * 300 + "'\n" + code, Preset.CODE) == "most characters of the longest line"


def test_boilerplate_that_repeats_is_dropped_with_the_measured_value():
    verdict = judge(column("Click here to subscribe to our newsletter today. " * 40), Preset.PROSE)
    rule = RULES[Preset.PROSE][int(verdict.rule[0])]
    assert "gram" in rule.measure and verdict.value[0] > rule.bound


SPACES = " \t\n\r\v\f"


def reference(text: str) -> dict[str, float]:
    """The measures in plain Python."""
    words = re.findall(rf"[^{SPACES}]+", text)
    lines = [line.strip(SPACES) for line in text.split("\n")]
    lines = [line for line in lines if line]
    counts = Counter(re.sub(rf"[{SPACES}]", " ", line) for line in lines)
    sizes = [len(word.encode()) for word in words]
    repeats = {line: count - 1 for line, count in counts.items()}
    ellipsis = [line for line in lines if line.endswith("...") or line.endswith("…")]
    found = {
        "words": len(words),
        "mean word length": sum(len(w) + sum("가" <= c <= "힣" for c in w) for w in words) / max(1, len(words)),
        "hash marks per word": text.count("#") / max(1, len(words)),
        "ellipses per word": (text.count("...") + text.count("…")) / max(1, len(words)),
        "lines": len(lines),
        "mean characters of a line": sum(map(len, lines)) / max(1, len(lines)),
        "characters of the longest line": max(map(len, lines), default=0),
        "share of lines ending in an ellipsis": len(ellipsis) / max(1, len(lines)),
        "share of lines with a bullet": sum(line[0] in "-*+•●◦▪‣" for line in lines) / max(1, len(lines)),
        "share of short lines": sum(len(line) <= 30 for line in lines) / max(1, len(lines)),
        "share of repeated lines": sum(repeats.values()) / max(1, len(lines)),
        "share of text in repeated lines": sum(len(line) * n for line, n in repeats.items())
        / max(1, sum(map(len, lines))),
    }
    for n in TOP_NGRAMS:
        grams = Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
        best = max(
            (count * sum(len(w.encode()) for w in gram) for gram, count in grams.items() if count > 1), default=0
        )
        found[f"share of the top {n}-gram"] = best / max(1, sum(sizes))
    for n in REPEATED_NGRAMS:
        seen, covered = set(), set()
        for i in range(len(words) - n + 1):
            gram = tuple(words[i : i + n])
            if gram in seen:
                covered.update(range(i, i + n))
            seen.add(gram)
        found[f"share of repeated {n}-grams"] = sum(sizes[i] for i in covered) / max(1, sum(sizes))
    return found


PIECES = st.sampled_from(
    [
        "a",
        "bb",
        "the",
        "é",
        "한글",
        "#",
        "...",
        "…",
        "....",
        "- x",
        "•",
        ".",
        "\n",
        " ",
        "\t",
        "\r\n",
        "\v",
        "12",
        "a b c d e f",
    ]
)


@given(st.lists(st.lists(PIECES, max_size=80).map("".join), min_size=1, max_size=4))
@settings(max_examples=300, deadline=None)
@example(["... ."])
def test_measures_are_those_of_the_reference(texts):
    measured = measures(column(*texts))
    for i, text in enumerate(texts):
        expected = reference(text)
        assert {name: pytest.approx(found[i]) for name, found in measured.items() if name in expected} == expected


def test_many_distinct_lines_are_all_told_apart():
    lines = [f"line number {i}" for i in range(5000)]
    assert value("\n".join(lines), "share of repeated lines") == 0
    assert value("\n".join(lines + lines[:500]), "share of repeated lines") == pytest.approx(500 / 5500)


def test_measures_do_not_depend_on_the_neighbours_in_a_column():
    texts = [*PARAGRAPHS.values(), "x " * 500, "", "a\nb\na\nb"]
    together = measures(column(*texts))
    for i, text in enumerate(texts):
        alone = measures(column(text))
        assert all(np.array_equal(alone[name][0], together[name][i]) for name in alone)
