"""Text in many languages under the default rules: none is wiped out, and the facts say what each one kept."""

import random
from collections import Counter, defaultdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stages.curate import CurateConfig
from tests.stages.curate.curated import curate, dropped, rows, source, write_jsonl

MULTILINGUAL = Path(__file__).parents[4] / "shared" / "data" / "multilingual"
SENTENCES_OF_A_DOCUMENT = 12

PARAGRAPHS = {
    "en": "The river rises in the hills above the town and runs past three old mills "
    "before it reaches the sea. In the spring the water is high and brown, and "
    "people come to watch it from the bridge. In summer children play on its "
    "banks, and in the autumn the leaves of the old trees lie on it like boats "
    "that nobody steers.",
    "ru": "Река начинается на холмах над городом и течёт мимо трёх старых мельниц, "
    "прежде чем достигает моря. Весной вода высокая и бурая, и люди приходят "
    "смотреть на неё с моста. Летом на берегах играют дети, а осенью листья старых "
    "деревьев лежат на воде, как лодки, которыми никто не правит.",
    "ar": "ينبع النهر من التلال فوق المدينة ويجري أمام ثلاث طواحين قديمة قبل أن يصل إلى "
    "البحر. في الربيع يكون الماء عاليا وبني اللون، ويأتي الناس لمشاهدته من فوق "
    "الجسر. في الصيف يلعب الأطفال على ضفافه، وفي الخريف تطفو أوراق الأشجار القديمة "
    "على سطحه مثل قوارب لا يقودها أحد في الليل.",
    "hi": "नदी शहर के ऊपर की पहाड़ियों से निकलती है और समुद्र तक पहुँचने से पहले तीन "
    "पुरानी चक्कियों के पास से बहती है। वसंत में पानी ऊँचा और मटमैला होता है, और "
    "लोग उसे पुल से देखने आते हैं। गर्मियों में बच्चे उसके किनारे पर खेलते हैं, और "
    "पतझड़ में पुराने पेड़ों के पत्ते उस पर ऐसे तैरते हैं जैसे नावें जिन्हें कोई "
    "नहीं चलाता।",
    "zh": "这条河发源于小镇上方的山丘，流经三座古老的磨坊，最后汇入大海。春天河水上涨，颜"
    "色浑黄，人们常常站在桥上观看。夏天孩子们在岸边玩耍，秋天老树的叶子落在水面上，"
    "像一只只无人驾驶的小船。冬天的早晨，河面上升起薄薄的雾气，远处的房屋和树木都变"
    "得模糊不清。老人们说，这条河比小镇还要古老，没有人知道它流了多少年。每年节日的"
    "时候，人们会在河边点起灯笼，唱起祖辈传下来的歌谣，直到深夜才慢慢散去。河水静静"
    "地流着，带走了所有的声音。",
    "ja": "その川は町の上の丘から流れ出し、三つの古い水車小屋のそばを通って海に注いでいる"
    "。春になると水かさが増して茶色に濁り、人々は橋の上からそれを眺めにやって来る。"
    "夏には子どもたちが岸辺で遊び、秋には古い木々の葉が、誰も漕がない小舟のように水"
    "面に浮かんでいる。冬の朝には薄い霧が立ちのぼり、遠くの家や木々がぼんやりとかす"
    "んで見える。年寄りたちは、この川は町よりもずっと古く、どれほどの年月流れてきた"
    "のか誰も知らないと言う。",
    "ko": "그 강은 마을 위의 언덕에서 시작하여 오래된 물레방앗간 세 곳을 지나 바다로 "
    "흘러간다. 봄이 되면 물이 불어나 누렇게 흐려지고 사람들은 다리 위에서 강물을 "
    "구경하러 온다. 여름에는 아이들이 강가에서 놀고, 가을에는 오래된 나무의 잎들이 "
    "아무도 젓지 않는 작은 배처럼 물 위에 떠 있다. 겨울 아침에는 엷은 안개가 "
    "피어올라 멀리 있는 집과 나무들이 희미하게 보인다. 노인들은 이 강이 마을보다 "
    "더 오래되었다고 말한다.",
    "th": "แม่น้ำสายนี้ไหลมาจากเนินเขาเหนือเมือง ผ่านโรงสีเก่าสามแห่งก่อนจะไหลลงสู่ทะเล ใ"
    "นฤดูใบไม้ผลิน้ำขึ้นสูงและขุ่น ผู้คนพากันมายืนดูบนสะพาน ในฤดูร้อนเด็กเด็กเล่นกั"
    "นอยู่ริมฝั่ง และในฤดูใบไม้ร่วงใบไม้จากต้นไม้เก่าแก่ลอยอยู่บนผิวน้ำเหมือนเรือที"
    "่ไม่มีใครพาย ในเช้าวันหนาวมีหมอกบางลอยขึ้นมา ทำให้บ้านเรือนและต้นไม้ที่อยู่ไกล"
    "ออกไปดูเลือนราง คนเฒ่าคนแก่เล่าว่าแม่น้ำสายนี้เก่าแก่กว่าเมืองเสียอีก",
}


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_same_clean_paragraph_is_kept_in_eight_languages_by_default_rules():
    write_jsonl("a.jsonl", [{"id": language, "text": text} for language, text in PARAGRAPHS.items()])
    made = curate(CurateConfig(sources=(source(),)))
    assert dropped(made) == {}
    kept = {row["id"]: row["language"] for side in ("train", "heldout") for row in rows(made, f"{side}/web")}
    assert kept == {language: language for language in PARAGRAPHS}
    assert {language: entry["kept_documents"] for language, entry in made.facts["languages"].items()} == dict.fromkeys(
        sorted(PARAGRAPHS), 1
    )


def test_wanted_languages_stay_and_the_others_go_by_name():
    write_jsonl("a.jsonl", [{"id": language, "text": text} for language, text in PARAGRAPHS.items()])
    made = curate(CurateConfig(sources=(source(),), languages=("en", "hi", "th")))
    gone = {name: reason for name, (reason, _) in dropped(made).items()}
    assert gone == {name: f"language: {name} not wanted" for name in set(PARAGRAPHS) - {"en", "hi", "th"}}
    funnel = made.facts["funnel"]
    assert [step[0] for step in funnel["domains"]["web"]] == [8, 8, 3, 3, 3, 3, 3]
    assert [step[0] for step in funnel["languages"]["ru"]] == [1, 1, 0, 0, 0, 0, 0]
    assert made.facts["languages"]["ru"]["dropped"]["language: ru not wanted"]["documents"] == 1


@pytest.mark.skipif(not MULTILINGUAL.is_dir(), reason="needs the shared multilingual text")
def test_no_language_is_wiped_out_by_default_rules():
    by_language: dict[str, list[str]] = defaultdict(list)
    table = pq.read_table(MULTILINGUAL / "sentences-75-languages.parquet", columns=["text", "lang"])
    for text, language in zip(table["text"].to_pylist(), table["lang"].to_pylist(), strict=True):
        by_language[language].append(text)
    records, labels = [], {}
    for language, texts in sorted(by_language.items()):
        random.Random(0).shuffle(texts)
        for number in range(0, len(texts) - SENTENCES_OF_A_DOCUMENT + 1, SENTENCES_OF_A_DOCUMENT):
            records.append(
                {
                    "id": f"{language}-{number:03}",
                    "text": "\n".join(texts[number : number + SENTENCES_OF_A_DOCUMENT]),
                }
            )
            labels[records[-1]["id"]] = language
    write_jsonl("a.jsonl", records)
    made = curate(CurateConfig(sources=(source(),)))
    kept = Counter(labels[row["id"]] for side in ("train", "heldout") for row in rows(made, f"{side}/web"))
    total = Counter(labels.values())
    low = {language: kept[language] / total[language] for language in total if kept[language] < 0.9 * total[language]}
    assert set(low) <= {"ur"} and min(low.values(), default=1) > 0.5, "the Urdu sentences do repeat one another"
    languages, domain = made.facts["languages"], made.facts["domains"]["web"]
    assert sum(entry["documents_in"] for entry in languages.values()) == domain["documents_in"] == len(records)
    assert sum(entry["kept_bytes"] for entry in languages.values()) == domain["train_bytes"] + domain["heldout_bytes"]
