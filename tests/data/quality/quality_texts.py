"""Texts for the tests of quality rules: a paragraph in eight languages, and a text of known value for each measure."""

from data.quality.phrases import STOP_WORDS

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

CODE = "import os\n\n\n" + "\n".join(f"def f{i}(x, y):\n    return x[{i}] + y * {i}  # {i}\n" for i in range(30))


def distinct(count: int, length: int = 5) -> list[str]:
    """Words that never repeat, of one length."""
    return ["".join("abcdefghij"[int(digit)] for digit in f"{i:0{length}}") for i in range(count)]


def clean_english(num_words: int) -> str:
    """Lines of four sentences of five words each, with stop words in it."""
    words = distinct(num_words)
    words[: len(STOP_WORDS)] = STOP_WORDS
    sentences = [" ".join(words[i : i + 5]).capitalize() + "." for i in range(0, num_words, 5)]
    return "\n".join(" ".join(sentences[i : i + 4]) for i in range(0, len(sentences), 4))


def text_with(measure: str) -> tuple[str, float]:
    """A text and its value of a measure, which is no 0."""
    words = distinct(1000)
    lines = [" ".join(words[4 * i : 4 * i + 4]) for i in range(100)]
    ten = " ".join(words[:10])
    known = {
        "words": (" ".join(words[:77]) + ", - ...", 77),
        "mean word length": ("aaa bbbbb, cccccccc", 16 / 3),
        "hash marks per unit": ("a # b c # d", 2 / 6),
        "ellipses per unit": ("a ... b… c d", 2 / 6),
        "share of words with a letter": ("a 1 b 2 c, d 3.5", 4 / 7),
        "share of units with a letter": ("ab, cd. 1", 2 / 5),
        "share of letters and digits": ("ab1 (é) --", 4 / 8),
        "distinct stop words": ("the to the With of", 3),
        "share of lines with a bullet": ("- a\n\n• b\nc - d\n* e", 2 / 4),
        "share of lines ending in an ellipsis": ("a...\nb…  \nc.\n...d", 2 / 4),
        "share of lines ending in punctuation": ("a.\nb! \nc。\nd:\n\ne", 3 / 5),
        "share of short lines": ("x" * 30 + "\n" + "x" * 31 + "\n\nx\n" + "y" * 40, 2 / 4),
        "newlines per unit": ("a b\n\nc d\ne", 3 / 5),
        "mean characters of a line": ("  abc\n\nabcdefg ", 5),
        "characters of the longest line": ("é" * 9 + " \nab", 9),
        "share of repeated lines": ("\n".join([*lines[:6], *lines[:2], lines[0]]), 3 / 9),
        "share of text in repeated lines": ("ab c\nabcd\nab c", 4 / 14),
        "share of repeated paragraphs": ("a\nb\n\nc\n \na\nb\n\nc\n\nd", 2 / 5),
        "share of text in repeated paragraphs": ("a\nb\n\nc\n\na\nb", 3 / 11),
        "share of the top 2-gram": ("ab cd, ab cd ef", 2 * 5 / 15),
        "share of the top 3-gram": ("ab cd e, ab cd e", 2 * 7 / 16),
        "share of the top 4-gram": ("a b c d, a b c d", 2 * 7 / 16),
        **{f"share of repeated {n}-grams": (f"{ten} x {ten}", n * 5 * (10 // n) / 121) for n in range(5, 11)},
        "sentences in kept lines": ("One is here. Two is.\nThree\nFour is here!", 3),
        "kept lines with a curly bracket": ("One {is} here.\n{Two\nThree is } here.\nFour { is here.", 2),
        "kept lines with lorem ipsum": ("Lorem ipsum is it.\nlorem ipsum\nSo lorem ipsum too.", 2),
    }
    return known[measure]
