// The beginning of a session that is longer than the events its server still tells: its poses, from the file of them.

import { poseOf } from "./view/algebra.js";

// Frames that the track lacks before its first one, oldest first, and the last correction that they were moved by; a line
// of the file is a frame.
export async function earlierFrames(api, id, tracks) {
  const reply = await api.request("GET", `/v1/sessions/${id}/poses.tum`), text = await reply.text();
  const lines = text.trim().split("\n"), first = tracks.frames[0]?.index ?? lines.length;
  const frames = lines.slice(0, first).flatMap((line, index) => frameOf(line, index, tracks.last?.intrinsics ?? null));
  return { frames, version: Number(reply.headers.get("Longtake-Version") ?? 0) };
}

function frameOf(line, index, intrinsics) {
  const numbers = line.split(" ").map(Number);
  if (numbers.length !== 8 || !numbers.every(Number.isFinite)) return [];
  const [time, x, y, z, qx, qy, qz, qw] = numbers;
  return [{ index, time, status: "final", pose: poseOf([qw, qx, qy, qz], [x, y, z]), intrinsics }];
}
