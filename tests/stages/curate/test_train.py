"""The command that trains models: from files to a file that curation can use, and errors that say what to change."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.errors import InputError
from data.quality.classifier import Classifier
from data.quality.ngram_model import NgramModel
from stages.curate.train import main, read_texts
from tests.data.quality.test_classifier import sets
from tests.data.quality.test_ngram_model import tales

REPOSITORY = Path(__file__).parents[3]


def test_a_classifier_from_files_of_several_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = sets(400, 300)
    lines = [json.dumps({"body": text}) for text in good] + ["{broken", json.dumps({"other": 1})]
    (tmp_path / "good.jsonl").write_text("\n".join(lines))
    for number, part in enumerate((bad[:100], bad[100:])):
        pq.write_table(pa.table({"body": part}), tmp_path / f"bad-{number}.parquet")
    out = tmp_path / "quality.arrow"
    main(
        ["classifier", "--good", str(tmp_path / "good.jsonl"), "--bad", str(tmp_path / "bad-*.parquet"), "--out",
         str(out), "--text-field", "body", "--bits", "12"]
    )  # fmt: skip
    printed = capsys.readouterr().out
    assert "left out: 1 records (malformed JSON)" in printed and "(text missing)" in printed
    model = Classifier.load(out)
    bound = float(re.search(r"^classifier_least = ([\d.]+)$", printed, re.MULTILINE)[1])
    assert bound == pytest.approx(model.report["threshold"], abs=1e-4)
    assert f"AUC {model.report['auc']:.4f}" in printed and model.report["auc"] > 0.95
    good_scores, bad_scores = (model.score(pa.array(texts, pa.large_string())) for texts in (good, bad))
    assert (good_scores >= bound).mean() > 0.8 and (bad_scores >= bound).mean() < 0.1


def test_an_ngram_model_from_text_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, text in enumerate(tales(150)):
        (tmp_path / f"{number}.txt").write_text(text)
    out = tmp_path / "clean.arrow"
    main(["perplexity", "--text", str(tmp_path / "*.txt"), "--out", str(out)])
    printed = capsys.readouterr().out
    model = NgramModel.load(out)
    bound = float(re.search(r"^perplexity_most = ([\d.]+)$", printed, re.MULTILINE)[1])
    assert bound == pytest.approx(model.report["held_out_quantiles"][-1][1], abs=1e-3)
    bits = model.bits_per_byte(pa.array([*tales(40, seed=5), "vwxyz " * 20], pa.large_string()))
    assert (bits[:-1] <= bound).mean() > 0.7 and bits[-1] > bound


def test_errors_name_what_to_change(tmp_path: Path) -> None:
    out = str(tmp_path / "out.arrow")
    command = [sys.executable, "-m", "stages.curate.train", "perplexity", "--text", str(tmp_path / "no-*.txt")]
    missing = subprocess.run([*command, "--out", out], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert missing.returncode == 2 and "no file matches" in missing.stderr and "Traceback" not in missing.stderr
    (tmp_path / "short.txt").write_text("a few words")
    with pytest.raises(InputError, match="too few"):
        main(["perplexity", "--text", str(tmp_path / "short.txt"), "--out", out])
    with pytest.raises(InputError, match="choose more than 0"):
        main(["classifier", "--good", "x.txt", "--bad", "y.txt", "--out", out, "--recall", "2"])
    with pytest.raises(InputError, match="there is no folder .*absent; name a file"):
        main(["perplexity", "--text", "unread.txt", "--out", str(tmp_path / "absent" / "out.arrow")])
    assert not Path(out).exists()


def test_files_without_a_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text('{"text": ""}\n{"text": 3}\n')
    with pytest.raises(InputError, match="there is no text in these files"):
        read_texts([str(tmp_path / "empty.jsonl")], "text", 1 << 20)
