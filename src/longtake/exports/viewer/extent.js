// How far what is shown reaches, but for stray points: what fitting, sizes, heights and the cut of ceilings go by.

import { dot, length, plus, scaled } from "./algebra.js";

const STRAY = 0.02;
const SPACINGS_ACROSS = 0.36;
const FEW_POINTS = 20_000;
const ABOVE_CAMERA = 0.3;
const FEWEST_SAMPLES = 24;

export function extentOf(points, way, times, up) {
  const samples = points.samples(up), centres = way.places();
  const places = samples.map(({ place }) => place);
  const all = places.length ? places : centres;
  if (!all.length) return null;
  const axes = [0, 1, 2].map((axis) => {
    const [low, high] = middle(all.map((place) => place[axis]));
    const own = centres.map((place) => place[axis]);
    return [Math.min(low, ...own), Math.max(high, ...own)];
  });
  const diagonal = axes.map(([low, high]) => high - low);
  const radius = length(diagonal) / 2 || 1;
  return {
    centre: axes.map(([low, high]) => (low + high) / 2),
    radius,
    spacing: radius / (SPACINGS_ACROSS * Math.sqrt(Math.max(points.count, FEW_POINTS))),
    heights: middle(all.map((place) => dot(place, up))),
    ceiling: ceilingOf(samples),
    times,
  };
}

// A little above the cameras, by how high they are above the floor; nothing is cut where that is not known yet.
function ceilingOf(samples) {
  if (samples.length < FEWEST_SAMPLES) return 1e30;
  const [lowest] = middle(samples.map(({ above }) => above));
  return lowest < 0 ? -lowest * ABOVE_CAMERA : 1e30;
}

function middle(values) {
  const sorted = Float64Array.from(values).sort(), last = sorted.length - 1;
  return [sorted[Math.floor(last * STRAY)], sorted[Math.ceil(last * (1 - STRAY))]];
}

// Down is where the cameras' lower edges point on average, forward where the first one looks.
export function axesOf(sumOfDowns, firstForward) {
  const size = length(sumOfDowns);
  const down = size > 1e-6 ? scaled(sumOfDowns, 1 / size) : [0, 1, 0];
  const ahead = plus(firstForward, down, -dot(firstForward, down));
  const otherwise = plus([0, 0, 1], down, -down[2]);
  const chosen = length(ahead) > 1e-3 ? ahead : length(otherwise) > 1e-3 ? otherwise : [1, 0, 0];
  const forward = scaled(chosen, 1 / length(chosen));
  const right = [
    down[1] * forward[2] - down[2] * forward[1],
    down[2] * forward[0] - down[0] * forward[2],
    down[0] * forward[1] - down[1] * forward[0],
  ];
  return { right, down, forward };
}
