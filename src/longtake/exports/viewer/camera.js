// Where the view looks from: around a target, or as a given camera with its own intrinsics; and flights between them.

import {
  between, centreOf, clamp, column, cross, dot, forwardOf, inverseOf, length, mix, multiply, plus, poseFrom, scaled,
  transform, unit, withoutScale,
} from "./algebra.js";

const FIELD_OF_VIEW = 0.9;
const STEEPEST = 1.5607;
const FLIGHT_MS = 650;
export const HOME = { yaw: -0.6, pitch: 0.75 };

export class ViewCamera {
  constructor() {
    this.setAxes([1, 0, 0], [0, 1, 0], [0, 0, 1]);
    this.orbit = { yaw: HOME.yaw, pitch: HOME.pitch, distance: 4, target: [0, 0, 0] };
    this.held = null;
    this.flight = null;
    this.radius = 1;
  }

  // Directions of the world as it is shown: orbiting turns about down.
  setAxes(right, down, forward) {
    Object.assign(this, { right, down, forward, up: scaled(down, -1) });
  }

  get isHeld() {
    return this.held !== null;
  }

  // World from view, right, down, forward.
  get pose() {
    if (this.flight) return this.flight.pose;
    return this.held ? this.held.pose : this.#orbitPose();
  }

  get intrinsics() {
    return this.held ? this.held.intrinsics : null;
  }

  turn(x, y) {
    this.flight = null;
    if (this.held) return this.#lookAround(x, y);
    this.orbit.yaw -= x;
    this.orbit.pitch = clamp(this.orbit.pitch + y, -STEEPEST, STEEPEST);
  }

  zoom(times) {
    this.leaveFrame();
    this.orbit.distance = clamp(this.orbit.distance * times, this.radius / 400, this.radius * 20);
  }

  // By pixels of a view so many pixels high.
  pan(x, y, height) {
    this.leaveFrame();
    const pose = this.pose, perPixel = (this.orbit.distance * Math.tan(FIELD_OF_VIEW / 2) * 2) / height;
    this.orbit.target = plus(plus(this.orbit.target, column(pose, 0), -x * perPixel), column(pose, 1), -y * perPixel);
  }

  look({ yaw = this.orbit.yaw, pitch = this.orbit.pitch, distance, target }) {
    Object.assign(this, { held: null, flight: null });
    this.orbit = { yaw, pitch: clamp(pitch, -STEEPEST, STEEPEST), distance, target: [...target] };
  }

  // As this camera sees: its pose, and its intrinsics where they are known.
  hold(pose, intrinsics) {
    this.flight = null;
    this.held = { pose: withoutScale(pose), intrinsics };
  }

  flyTo(pose, intrinsics, now, isStill = false) {
    const from = { pose: this.pose, intrinsics: this.intrinsics };
    const to = { pose: withoutScale(pose), intrinsics };
    this.held = to;
    this.flight = isStill ? null : { from, to, start: now, pose: from.pose, share: 0 };
  }

  // One step of a flight; whether it goes on.
  step(now) {
    const flight = this.flight;
    if (!flight) return false;
    const share = (now - flight.start) / FLIGHT_MS;
    if (share >= 1) {
      this.flight = null;
      return false;
    }
    flight.share = share * share * (3 - 2 * share);
    flight.pose = between(flight.from.pose, flight.to.pose, flight.share);
    return true;
  }

  // Orbit about what is ahead, from where the view is now.
  leaveFrame() {
    if (!this.held) return;
    const pose = this.pose, distance = Math.min(this.orbit.distance, this.radius / 2);
    const away = scaled(forwardOf(pose), -1);
    Object.assign(this, { held: null, flight: null });
    this.orbit = {
      pitch: Math.asin(clamp(dot(away, this.up), -1, 1)),
      yaw: Math.atan2(dot(away, this.right), -dot(away, this.forward)),
      distance,
      target: plus(centreOf(pose), away, -distance),
    };
  }

  pinhole(width, height) {
    const now = pinholeOf(this.intrinsics, width, height);
    if (!this.flight) return now;
    const before = pinholeOf(this.flight.from.intrinsics, width, height), share = this.flight.share;
    return Object.fromEntries(Object.keys(now).map((name) => [name, before[name] + (now[name] - before[name]) * share]));
  }

  clip(width, height) {
    const { fx, fy, cx, cy } = this.pinhole(width, height);
    const near = this.isHeld ? this.radius / 500 : Math.max(this.orbit.distance / 100, this.radius / 2000);
    const far = this.orbit.distance + 20 * this.radius;
    const clipFromView = [
      (2 * fx) / width, 0, (2 * cx) / width - 1, 0,
      0, (-2 * fy) / height, 1 - (2 * cy) / height, 0,
      0, 0, (far + near) / (far - near), (-2 * far * near) / (far - near),
      0, 0, 1, 0,
    ];
    return { matrix: multiply(clipFromView, inverseOf(this.pose)), near, focal: Math.max(fx, fy) };
  }

  // The pixel of a point in the world, or null behind the view.
  project(point, width, height) {
    const [x, y, z] = transform(inverseOf(this.pose), point);
    if (z <= 0) return null;
    const { fx, fy, cx, cy } = this.pinhole(width, height);
    return [(fx * x) / z + cx, (fy * y) / z + cy];
  }

  // A share of the way towards another orbit; whether it is still far.
  approach({ target, distance, yaw = this.orbit.yaw, pitch = this.orbit.pitch }, share) {
    const orbit = this.orbit, turn = Math.atan2(Math.sin(yaw - orbit.yaw), Math.cos(yaw - orbit.yaw));
    const rest = length(plus(target, orbit.target, -1)) / distance + Math.abs(distance / orbit.distance - 1)
      + Math.abs(turn) + Math.abs(pitch - orbit.pitch);
    orbit.target = mix(orbit.target, target, share);
    orbit.distance += (distance - orbit.distance) * share;
    orbit.yaw += turn * share;
    orbit.pitch += (pitch - orbit.pitch) * share;
    return rest > 0.004;
  }

  // The orbit that sees what is within this radius, but for the corners of its box.
  static around(centre, radius) {
    return { target: centre, distance: radius * 1.8 };
  }

  #orbitPose() {
    const { yaw, pitch, distance, target } = this.orbit;
    const level = plus(scaled(this.forward, -Math.cos(yaw)), this.right, Math.sin(yaw));
    const away = plus(scaled(level, Math.cos(pitch)), this.up, Math.sin(pitch));
    const ahead = scaled(away, -1), right = unit(cross(this.down, ahead));
    return poseFrom(right, cross(ahead, right), ahead, plus(target, away, distance));
  }

  #lookAround(x, y) {
    const pose = this.held.pose, ahead = forwardOf(pose), right = unit(cross(this.down, ahead));
    const turned = plus(plus(ahead, right, -x), this.down, -y), forward = unit(turned);
    const aside = unit(cross(this.down, forward));
    this.held = { pose: poseFrom(aside, cross(forward, aside), forward, centreOf(pose)), intrinsics: this.held.intrinsics };
  }
}

// A pinhole camera of the view's pixels: a given camera's picture is wholly within.
function pinholeOf(given, width, height) {
  if (!given) {
    const focal = Math.min(width, height) / 2 / Math.tan(FIELD_OF_VIEW / 2);
    return { fx: focal, fy: focal, cx: width / 2, cy: height / 2 };
  }
  // A network's pixel (0, 0) names the centre of the first pixel, half a pixel from the edge.
  const scale = Math.min(width / given.width, height / given.height);
  return {
    fx: given.fx * scale,
    fy: given.fy * scale,
    cx: width / 2 + (given.cx + 0.5 - given.width / 2) * scale,
    cy: height / 2 + (given.cy + 0.5 - given.height / 2) * scale,
  };
}
