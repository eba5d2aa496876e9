// Vectors are arrays of three numbers, poses arrays of sixteen, row by row. Axes of cameras: right, down, forward.

export const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
export const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
export const plus = (a, b, times = 1) => [a[0] + times * b[0], a[1] + times * b[1], a[2] + times * b[2]];
export const scaled = (a, times) => [a[0] * times, a[1] * times, a[2] * times];
export const length = (a) => Math.hypot(a[0], a[1], a[2]);
export const unit = (a) => scaled(a, 1 / (length(a) || 1));
export const clamp = (value, least, most) => Math.min(most, Math.max(least, value));
export const mix = (a, b, share) => a.map((value, place) => value + (b[place] - value) * share);

export const IDENTITY = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1];

export const column = (pose, number) => [pose[number], pose[4 + number], pose[8 + number]];
export const centreOf = (pose) => column(pose, 3);
export const forwardOf = (pose) => unit(column(pose, 2));

export function poseFrom(right, down, forward, centre) {
  return [
    right[0], down[0], forward[0], centre[0],
    right[1], down[1], forward[1], centre[1],
    right[2], down[2], forward[2], centre[2],
    0, 0, 0, 1,
  ];
}

export function multiply(a, b) {
  const product = new Array(16);
  for (let row = 0; row < 4; row++) {
    for (let place = 0; place < 4; place++) {
      let sum = 0;
      for (let k = 0; k < 4; k++) sum += a[4 * row + k] * b[4 * k + place];
      product[4 * row + place] = sum;
    }
  }
  return product;
}

export function transform(pose, [x, y, z]) {
  return [0, 4, 8].map((row) => pose[row] * x + pose[row + 1] * y + pose[row + 2] * z + pose[row + 3]);
}

// How much longer a pose makes things: 1 but for windows that were moved and scaled.
export const scaleOf = (pose) => length(column(pose, 0));

export function withoutScale(pose) {
  const forward = forwardOf(pose);
  const right = unit(plus(column(pose, 0), forward, -dot(column(pose, 0), forward)));
  return poseFrom(right, cross(forward, right), forward, centreOf(pose));
}

// The inverse of a pose without scale.
export function inverseOf(pose) {
  const axes = [0, 1, 2].map((number) => column(pose, number));
  const rows = axes.map((axis) => [...axis, -dot(axis, centreOf(pose))]);
  return [...rows.flat(), 0, 0, 0, 1];
}

export function quaternionOf(pose) {
  const [xx, yy, zz] = [pose[0], pose[5], pose[10]];
  const values = [1 + xx + yy + zz, 1 + xx - yy - zz, 1 - xx + yy - zz, 1 - xx - yy + zz];
  const largest = values.indexOf(Math.max(...values));
  const half = Math.sqrt(values[largest]) / 2;
  const [a, b, c] = [pose[9] - pose[6], pose[2] - pose[8], pose[4] - pose[1]];
  const [d, e, f] = [pose[1] + pose[4], pose[2] + pose[8], pose[6] + pose[9]];
  const over = 1 / (4 * half);
  return [
    [half, a * over, b * over, c * over],
    [a * over, half, d * over, e * over],
    [b * over, d * over, half, f * over],
    [c * over, e * over, f * over, half],
  ][largest];
}

export function poseOf([w, x, y, z], centre) {
  return poseFrom(
    [1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)],
    [2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)],
    [2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)],
    centre,
  );
}

// A share of the way from one pose to another: straight, and turning evenly.
export function between(from, to, share) {
  const a = quaternionOf(from);
  let b = quaternionOf(to);
  let cosine = a.reduce((sum, value, place) => sum + value * b[place], 0);
  if (cosine < 0) [b, cosine] = [b.map((value) => -value), -cosine];
  const angle = Math.acos(Math.min(1, cosine));
  const sine = Math.sin(angle);
  const [left, right] = sine < 1e-6 ? [1 - share, share]
    : [Math.sin((1 - share) * angle) / sine, Math.sin(share * angle) / sine];
  const turned = a.map((value, place) => value * left + b[place] * right);
  const size = Math.hypot(...turned);
  return poseOf(turned.map((value) => value / size), mix(centreOf(from), centreOf(to), share));
}
