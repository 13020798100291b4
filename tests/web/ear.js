// Run before the page asks for its microphone: takes samples of the same track with the browser's own capture timestamps, so that
// the way of a sample from the microphone into the page's audio graph can be measured. Ten blocks of 10 ms every three seconds.
// window.ear = [{ timestamp: page ms of the first sample, rate, zero: page ms of the graph's frame 0 by the clocks of that moment,
// samples }]

window.ear = [];
const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
navigator.mediaDevices.getUserMedia = async (wanted) => {
  const stream = await open(wanted);
  const reader = new MediaStreamTrackProcessor({ track: stream.getAudioTracks()[0].clone() }).readable.getReader();
  const listen = async () => {
    for (let n = 0, piece = null; ; n++) {
      const { value, done } = await reader.read();
      if (done) return;
      if (n % 300 >= 290) {
        const block = new Float32Array(value.numberOfFrames);
        value.copyTo(block, { planeIndex: 0, format: 'f32-planar' });
        piece ??= { timestamp: value.timestamp / 1000, rate: value.sampleRate, zero: antiphon.gated_at(0), samples: [] };
        piece.samples.push(...block);
        if (n % 300 === 299) {
          window.ear.push(piece);
          piece = null;
        }
      }
      value.close();
    }
  };
  listen();
  return stream;
};
