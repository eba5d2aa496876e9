// The marks of the timeline; each has a shape of its own, whatever its colour.

import { element } from "./dom.js";

export const SHAPES = {
  dropped: (pen, x, { bad }) => cross(pen, x, 9, bad),
  unreadable: (pen, x, { bad }) => cross(pen, x, 9, bad),
  forgotten: (pen, x, { warm }) => triangle(pen, x, 31, warm),
  asked: (pen, x, { text, card }) => dot(pen, x, 9, text, card),
};

export function drawKey(pen, name, colours) {
  if (name === "final") pen.fillStyle = colours.accent;
  else if (name === "provisional") pen.fillStyle = hatched(pen, colours.accent);
  else if (name === "kept") pen.fillStyle = colours.good;
  else return { forgotten: () => triangle(pen, 8, 5, colours.warm), dropped: () => cross(pen, 8, 5, colours.bad),
    asked: () => dot(pen, 8, 5, colours.text, colours.card) }[name]();
  pen.fillRect(0, 1, 16, 8);
}

function cross(pen, x, y, colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = 1.6;
  pen.beginPath();
  for (const side of [-3, 3]) {
    pen.moveTo(x - 3, y - side);
    pen.lineTo(x + 3, y + side);
  }
  pen.stroke();
  pen.lineWidth = 1;
}

function triangle(pen, x, y, colour) {
  pen.fillStyle = colour;
  pen.beginPath();
  pen.moveTo(x - 3.5, y - 3);
  pen.lineTo(x + 3.5, y - 3);
  pen.lineTo(x, y + 3);
  pen.fill();
}

function dot(pen, x, y, colour, inside) {
  pen.beginPath();
  pen.arc(x, y, 3.5, 0, 7);
  pen.fillStyle = inside;
  pen.fill();
  pen.strokeStyle = colour;
  pen.lineWidth = 1.6;
  pen.stroke();
  pen.lineWidth = 1;
}

export function hatched(pen, colour) {
  const tile = element("canvas", { width: 4, height: 4 }), ink = tile.getContext("2d");
  ink.fillStyle = colour;
  for (let at = 0; at < 4; at++) ink.fillRect(at, 3 - at, 1.4, 1.4);
  return pen.createPattern(tile, "repeat");
}

export function coloursOf(place) {
  const style = getComputedStyle(place), names = ["accent", "soft", "line", "text", "card", "good", "warm", "bad", "lit"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}
