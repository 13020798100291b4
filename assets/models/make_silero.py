#!/usr/bin/env python3
"""Takes the weights of Silero VAD (16 kHz) out of its wheel, and scores a clip with the original for comparison.

Usage: make_silero.py WHEEL              writes silero_16k.bin
       make_silero.py WHEEL --scores     writes silero_scores.json too

WHEEL is silero_vad-6.2.3-py3-none-any.whl, known by its hash. Needs numpy and onnx; the scores need onnxruntime. The weights are those of the ONNX
files of the wheel; its safetensors file holds another training. They are written as little-endian f32, one tensor after the other, in the order of
TENSORS and in the layout they have in the file. The basis of the STFT is not among them: it is a DFT of 256 under a periodic Hann window,
and the script says so if it is not.
"""

import hashlib
import io
import json
import pathlib
import sys
import wave
import zipfile

import numpy as np
import onnx
from onnx import numpy_helper

WHEEL_SHA256 = "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8"
ONNX = "silero_vad/data/silero_vad_16k_op15.onnx"
LICENSE = "silero_vad-6.2.3.dist-info/licenses/LICENSE"
TENSORS = [
    ("model.encoder.0.reparam_conv.weight", (128, 129, 3)),
    ("model.encoder.0.reparam_conv.bias", (128,)),
    ("model.encoder.1.reparam_conv.weight", (64, 128, 3)),
    ("model.encoder.1.reparam_conv.bias", (64,)),
    ("model.encoder.2.reparam_conv.weight", (64, 64, 3)),
    ("model.encoder.2.reparam_conv.bias", (64,)),
    ("model.encoder.3.reparam_conv.weight", (128, 64, 3)),
    ("model.encoder.3.reparam_conv.bias", (128,)),
    ("model.decoder.rnn.weight_ih", (512, 128)),
    ("model.decoder.rnn.weight_hh", (512, 128)),
    ("model.decoder.rnn.bias_ih", (512,)),
    ("model.decoder.rnn.bias_hh", (512,)),
    ("model.decoder.decoder.2.weight", (1, 128, 1)),
    ("model.decoder.decoder.2.bias", (1,)),
]
CLIP = "vctk_p226_011.wav"
CONTEXT, NEW = 64, 512


def main():
    here = pathlib.Path(__file__).resolve().parent
    wheel = pathlib.Path(sys.argv[1]).read_bytes()
    assert hashlib.sha256(wheel).hexdigest() == WHEEL_SHA256, "another wheel"
    files = zipfile.ZipFile(io.BytesIO(wheel))
    model = files.read(ONNX)
    tensors = {t.name: numpy_helper.to_array(t) for t in onnx.load_from_string(model).graph.initializer}

    n, k = np.arange(256), np.arange(129)[:, None]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * n / 256)
    angle = 2 * np.pi * k * n / 256
    basis = np.concatenate([np.cos(angle) * window, -np.sin(angle) * window])
    assert np.abs(tensors["model.stft.forward_basis_buffer"][:, 0] - basis).max() < 1e-6, "another basis"

    out = b""
    for name, shape in TENSORS:
        assert tensors[name].shape == shape and tensors[name].dtype == np.float32, name
        out += tensors[name].astype("<f4").tobytes()
    (here / "silero_16k.bin").write_bytes(out)
    (here / "LICENSE.silero").write_bytes(files.read(LICENSE))
    print(f"silero_16k.bin: {len(out)} bytes, sha256 {hashlib.sha256(out).hexdigest()}")
    if "--scores" in sys.argv:
        scores(model, here)


def scores(model, here):
    import onnxruntime

    session = onnxruntime.InferenceSession(model)
    with wave.open(str(here.parent / "audio" / CLIP)) as clip:
        assert clip.getframerate() == 16000 and clip.getnchannels() == 1
        pcm = np.frombuffer(clip.readframes(clip.getnframes()), "<i2").astype(np.float32) / 32768
    state, context = np.zeros((2, 1, 128), np.float32), np.zeros(CONTEXT, np.float32)
    said = []
    for start in range(0, len(pcm) - NEW + 1, NEW):
        frame = np.concatenate([context, pcm[start : start + NEW]])
        p, state = session.run(None, {"input": frame[None], "state": state, "sr": np.array(16000, np.int64)})
        context = frame[-CONTEXT:]
        said.append(round(float(p[0, 0]), 6))
    (here / "silero_scores.json").write_text(json.dumps({"clip": CLIP, "probabilities": said}) + "\n")
    print(f"silero_scores.json: {len(said)} frames of {CLIP}")


main()
