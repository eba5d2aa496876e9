// Pointers, wheel and keys on the view.

import { clamp } from "./algebra.js";

const PER_PIXEL = 1 / 150;
const STEP = 0.1;
const STILL_PX = 5;

// `on` has turn, zoom, pan, click; each is told what changed.
export function listenToGestures(canvas, on) {
  const fingers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    if (!fingers.size) moved = 0;
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const [x, y] = [event.clientX - before[0], event.clientY - before[1]];
    const other = [...fingers].find(([finger]) => finger !== event.pointerId);
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    moved += Math.abs(x) + Math.abs(y);
    if (other) pinch(on, before, [event.clientX, event.clientY], other[1]);
    else if (event.shiftKey || event.buttons & 6) on.pan(x, y);
    else on.turn(x * PER_PIXEL, y * PER_PIXEL);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(name, (event) => {
      const isClick = fingers.delete(event.pointerId) && name === "pointerup" && moved < STILL_PX && event.button === 0;
      const box = canvas.getBoundingClientRect();
      if (isClick) on.click(event.clientX - box.left, event.clientY - box.top);
    });
  }
  canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    on.zoom(Math.exp(clamp(event.deltaY, -200, 200) / 500));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !press(on, event)) return;
    event.preventDefault();
    event.stopPropagation();
  });
}

function pinch(on, before, now, other) {
  const apart = (place) => Math.max(1, Math.hypot(place[0] - other[0], place[1] - other[1]));
  on.zoom(apart(before) / apart(now));
  on.pan((now[0] - before[0]) / 2, (now[1] - before[1]) / 2);
}

function press(on, { key, shiftKey }) {
  const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  if (key in arrows) {
    const [x, y] = arrows[key];
    if (shiftKey) on.pan(-40 * x, -40 * y);
    else on.turn(x * STEP, y * STEP);
  } else if (key === "+" || key === "=") on.zoom(0.9);
  else if (key === "-") on.zoom(1 / 0.9);
  else return false;
  return true;
}
