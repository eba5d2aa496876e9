// Binary messages of a session's socket: 16 bytes of header, fields as JSON, the payload.
//
// byte  0     1      2       4         8               16              16 + header
//       kind  codec  header  sequence  time in us      fields, JSON    payload
//       u8    u8     u16     u32       i64

export const KIND = { FRAME: 1, GEOMETRY: 2, POINTS: 3, PREVIEW: 4 };
export const CODEC = { JPEG: 1, POINTS: 4 };
export const POINT_BYTES = 10;
const HEADER_BYTES = 16;

export function decode(buffer) {
  const view = new DataView(buffer);
  const start = HEADER_BYTES + view.getUint16(2, true);
  const text = new TextDecoder().decode(new Uint8Array(buffer, HEADER_BYTES, start - HEADER_BYTES));
  return {
    kind: view.getUint8(0),
    codec: view.getUint8(1),
    sequence: view.getUint32(4, true),
    time_s: Number(view.getBigInt64(8, true)) / 1e6,
    fields: text ? JSON.parse(text) : {},
    payload: new Uint8Array(buffer, start),
  };
}

// A picture for the server.
export async function encodeFrame(sequence, timeUs, jpeg) {
  const header = new DataView(new ArrayBuffer(HEADER_BYTES));
  header.setUint8(0, KIND.FRAME);
  header.setUint8(1, CODEC.JPEG);
  header.setUint32(4, sequence, true);
  header.setBigInt64(8, BigInt(Math.round(timeUs)), true);
  return new Blob([header, jpeg]).arrayBuffer();
}

// The rows of a chunk that are really there.
export function pointsOf({ sequence, fields, payload }) {
  const count = Math.min(fields.count, Math.floor(payload.length / POINT_BYTES));
  const aligned = payload.slice(0, count * POINT_BYTES);
  return { number: sequence, frame: fields.frame, origin: fields.origin, scale: fields.scale, rows: aligned, count };
}
