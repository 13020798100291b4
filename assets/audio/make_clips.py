#!/usr/bin/env python3
"""Cuts the clips of this directory from the corpora named in README.md.

Usage: make_clips.py CORPUS [OUT]

CORPUS is a directory with a manifest.json (entries: id, file, licence, source, speaker, sex, labels) and its FLAC or WAV
files. Needs sox. Each clip is one stretch of speech: it begins 30 ms before the labelled onset, so that the
recording's own background does not announce the voice, and ends where the table says, with 10 ms fades, at 16 kHz, mono, 16 bit, without dither, so that the same
corpus gives the same bytes. Labels are shifted along and written to clips.json.
"""

import hashlib
import json
import pathlib
import subprocess
import sys

LEAD_S = 0.030
FADE_S = 0.010

# role, id in the corpus, end of the cut in seconds of the recording, words (where the corpus gives them)
TABLE = [
    ("question", "vctk_p225_020", 3.60, "Many complicated ideas about the rainbow have been formed."),
    ("barge_in", "ls_1069_133699_0000", 2.80, None),
    ("barge_in", "ls_412_126975_0000", 1.95, None),
    ("barge_in", "ls_4195_17507_0000", 1.85, None),
    ("barge_in", "ls_911_128684_0000", 2.70, None),
    ("barge_in", "ls_5163_18515_0000", 2.80, None),
    ("barge_in", "jfk", 2.25, "And so, my fellow Americans,"),
    ("barge_in", "ls_533_1066_0002", 2.00, None),
    ("barge_in", "ls_2843_152918_0000", 2.83, None),
    ("barge_in", "ls_3080_5032_0003", 2.60, None),
    ("barge_in", "ls_3699_175950_0000", 2.90, None),
    ("spare", "vctk_p226_011", 2.40, "When a man looks for something beyond his reach,"),
]


def main():
    corpus = pathlib.Path(sys.argv[1])
    out = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else __file__).resolve()
    out = out if out.is_dir() else out.parent
    entries = {e["id"]: e for e in json.loads((corpus / "manifest.json").read_text())["entries"]}
    clips = []
    for role, name, end, words in TABLE:
        entry = entries[name]
        labels = entry["labels"]
        start = round(max(0.0, labels["onset_s"] - LEAD_S), 3)
        target = out / f"{name}.wav"
        subprocess.run(
            ["sox", "-D", str(corpus / entry["file"]), "-b", "16", "-c", "1", "-r", "16000", str(target),
             "trim", str(start), f"={end}", "fade", "t", str(FADE_S), "0", str(FADE_S)],
            check=True,
        )
        clips.append({
            "file": target.name,
            "role": role,
            "speaker": entry["speaker"],
            "sex": entry["sex"],
            "words": words,
            "duration_s": round(end - start, 3),
            "onset_s": round(labels["onset_s"] - start, 4),
            "voiced_onset_s": round(labels["voiced_onset_s"] - start, 4),
            "onset_quality": labels["onset_quality"],
            "active_rms_dbfs": labels["active_rms_dbfs"],
            "licence": entry["licence"],
            "source": entry["source"],
            "original": entry["original_file"] if "original_file" in entry else entry["file"],
            "sha256": hashlib.sha256(target.read_bytes()).hexdigest(),
        })
    (out / "clips.json").write_text(json.dumps({"rate_hz": 16000, "clips": clips}, indent=1, ensure_ascii=False) + "\n")


main()
